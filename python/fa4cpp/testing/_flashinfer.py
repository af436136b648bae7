"""What FlashInfer's test files call, answered by fa4cpp; the reference that they compare with is plain attention, which is none of ours."""

import math

import torch

import fa4cpp

_NOBODY = 2147480000  # behind a sequence's last page: what must not be read


def _refuse(**asked):
    """Raises for what a wrapper is asked that is not here; (given, accepted) by name."""
    for name, (given, accepted) in asked.items():
        if given not in (accepted if isinstance(accepted, tuple) else (accepted,)):
            raise fa4cpp.NotSupportedError(f"{name} {given!r} is not in this version; accepted: {accepted}")


def _caches(paged_kv_cache, kv_layout):
    """(k, v) of (pages, page_size, heads, dim), views of what was given."""
    _refuse(kv_layout=(kv_layout, ("NHD", "HND")))
    k, v = paged_kv_cache if isinstance(paged_kv_cache, tuple) else paged_kv_cache.unbind(1)
    return (k, v) if kv_layout == "NHD" else (k.transpose(1, 2), v.transpose(1, 2))


def _table(indptr, indices):
    """(batch, most pages) of the pages of each sequence, which FlashInfer keeps one behind the other."""
    counts = indptr.diff()
    table = torch.full((len(counts), max(1, int(counts.max()))), _NOBODY, dtype=torch.int32, device=indices.device)
    for b, (first, count) in enumerate(zip(indptr.tolist(), counts.tolist())):
        table[b, :count] = indices[first:first + count]
    return table


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    return (kv_indptr.diff() - 1).clip(0) * page_size + kv_last_page_len


def get_batch_indices_positions(append_indptr, seq_lens, nnz):
    """Whose each new row is, and its number in the cache, of which the new rows are the last."""
    row = torch.arange(nnz, dtype=torch.int32, device=append_indptr.device)
    sequence = torch.searchsorted(append_indptr[1:], row, right=True).to(torch.int32)
    ends = append_indptr[1:][sequence]
    return sequence, seq_lens[sequence] - (ends - row)


def append_paged_kv_cache(append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr, kv_last_page_len,
                          kv_layout="NHD"):
    """Each new row to its place; in one fa4_append, so that the rows of a sequence follow each other."""
    k, v = _caches(paged_kv_cache, kv_layout)
    batch = len(kv_last_page_len)
    starts = torch.searchsorted(batch_indices.contiguous(), torch.arange(batch + 1, dtype=batch_indices.dtype, device=k.device)).to(torch.int32)
    lengths = torch.where(starts.diff() > 0, positions[starts[:-1].clip(max=len(positions) - 1)], 0)
    fa4cpp.append(k, v, append_key, append_value, cache_seqlens=lengths, cu_seqlens_k_new=starts, page_table=_table(kv_indptr, kv_indices))


class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", **_):
        self._layout = kv_layout

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, *, pos_encoding_mode="NONE",
             window_left=-1, logits_soft_cap=None, q_data_type=None, kv_data_type=None, data_type=None, sm_scale=None, **_):
        _refuse(pos_encoding_mode=(pos_encoding_mode, "NONE"))
        self._table, self._lengths = _table(indptr, indices), get_seq_lens(indptr, last_page_len, page_size)
        self._options = dict(window_size=(window_left, -1), softcap=logits_soft_cap or 0.0, softmax_scale=sm_scale)

    def run(self, q, paged_kv_cache, *, out=None, return_lse=False, **_):
        """(batch, heads, dim), and lse to the base of 2 (batch, heads)."""
        k, v = _caches(paged_kv_cache, self._layout)
        result, lse = fa4cpp.flash_attn_with_kvcache(q[:, None], k, v, cache_seqlens=self._lengths, page_table=self._table, causal=True,
                                                     return_lse=True, out=None if out is None else out[:, None], **self._options)
        return (result[:, 0], lse[..., 0] / math.log(2)) if return_lse else result[:, 0]


def single_decode_with_kv_cache(q, k, v, *, pos_encoding_mode="NONE", logits_soft_cap=None):
    """The reference: attention of one query (heads, dim) over keys (length, heads_kv, dim) in float32."""
    _refuse(pos_encoding_mode=(pos_encoding_mode, "NONE"))
    group = q.shape[0] // k.shape[1]
    keys, values = (part.float().repeat_interleave(group, 1).transpose(0, 1) for part in (k, v))
    scores = (keys @ q.float()[:, :, None])[..., 0] / math.sqrt(q.shape[-1])
    if logits_soft_cap:
        scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
    return (scores.softmax(-1)[:, None] @ values)[:, 0].to(q.dtype)


NAMES = dict(append_paged_kv_cache=append_paged_kv_cache, get_batch_indices_positions=get_batch_indices_positions, get_seq_lens=get_seq_lens,
             BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper)
DECODE = dict(BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper, single_decode_with_kv_cache=single_decode_with_kv_cache)
