"""SGLang's attention backend over fa4cpp, as SGLang 0.5.23 has the interface.

SGLang's own pool writes new keys and values; attention reads them where they lie, through a page table that is made of the pool's
slots once a step. In CUDA graphs, which hold decoding, lengths and table are copied into tensors that stay.
"""

from dataclasses import dataclass

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool

from .._api import flash_attn_varlen_func
from .._errors import NotSupportedError
from ..torch import _tensors


def _refuse(what, accepted):
    raise NotSupportedError(f"{what} is not in this version; accepted: {accepted}")


@dataclass
class Step:
    """A step's batch, the same for all layers; starts is None where every sequence has one query."""

    lengths: torch.Tensor
    table: torch.Tensor
    starts: torch.Tensor
    max_query_len: int
    max_seq_len: int


class Backend(AttentionBackend):
    def __init__(self, runner):
        super().__init__()
        pool = runner.token_to_kv_pool
        if runner.use_mla_backend:
            _refuse("latent attention", "models with keys and values of each head")
        if type(pool) is not MHATokenToKVPool or pool.use_hnd:
            _refuse(f"a pool {type(pool).__name__}{' with heads outside of rows' if type(pool) is MHATokenToKVPool else ''}",
                    "MHATokenToKVPool, rows outside of heads (--disable-hybrid-swa-memory)")
        if pool.dtype not in (torch.float16, torch.bfloat16, torch.float8_e4m3fn):
            _refuse(f"kv_cache_dtype {str(pool.dtype)[6:]}", "float16, bfloat16, float8_e4m3fn")
        self._pool, self._page, self._requests = pool, pool.page_size, runner.req_to_token_pool.req_to_token
        self._context = self._requests.shape[1]

    # ---- A step ---------------------------------------------------------------------------------------------------------

    def _table(self, batch, longest):
        slots = self._requests[batch.req_pool_indices, :longest:self._page]
        return slots if self._page == 1 else slots // self._page

    def init_forward_metadata(self, forward_batch):
        batch = forward_batch
        if batch.spec_info is not None or batch.encoder_lens is not None:
            _refuse("speculative decoding, or an encoder beside the decoder,", "batches of prompts and of single tokens")
        longest = int(batch.seq_lens_cpu.max()) if len(batch.seq_lens_cpu) else 0
        starts, most = None, 1
        if not batch.forward_mode.is_decode_or_idle():
            starts = torch.nn.functional.pad(batch.extend_seq_lens.cumsum(0, dtype=torch.int32), (1, 0))
            most = _tensors.rows_of_plan(max(batch.extend_seq_lens_cpu, default=0))
        self.forward_metadata = Step(batch.seq_lens.to(torch.int32), self._table(batch, max(1, longest)), starts, most, longest)

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        self._graph_lengths = torch.zeros(max_bs, dtype=torch.int32, device=self._requests.device)
        self._graph_table = torch.zeros(max_bs, -(-self._context // self._page), dtype=torch.int32, device=self._requests.device)

    def get_cuda_graph_seq_len_fill_value(self):
        return 1

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        batch, count = forward_batch, forward_batch.batch_size
        if not batch.forward_mode.is_decode_or_idle() or batch.spec_info is not None:
            _refuse("a CUDA graph of anything but decoding", "forward_mode DECODE")
        lengths, table = self._graph_lengths[:count], self._graph_table[:count]
        lengths.copy_(batch.seq_lens[:count])
        longest = self._context if in_capture or batch.seq_lens_cpu is None else int(batch.seq_lens_cpu.max())
        slots = self._requests[batch.req_pool_indices[:count], :longest:self._page]
        torch.div(slots, self._page, rounding_mode="floor", out=table[:, :slots.shape[1]])
        self.forward_metadata = Step(lengths, table, None, 1, self._context)

    # ---- A layer --------------------------------------------------------------------------------------------------------

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **others):
        for name, value in others.items():
            if value is not None and value is not False:
                _refuse(f"{name} of a layer", "None")
        if layer.is_cross_attention or layer.logit_capping_method != "tanh":
            _refuse("cross attention, or a cap other than tanh,", "is_cross_attention False, logit_capping_method 'tanh'")
        descales = (layer.k_scale, layer.v_scale) if self._pool.dtype == torch.float8_e4m3fn else (None, None)
        if save_kv_cache and k is not None:
            k, v = k.view(-1, layer.tp_k_head_num, layer.qk_head_dim), v.view(-1, layer.tp_v_head_num, layer.v_head_dim)
            # The pool divides in place.
            k, v = (new if scale is None else new.clone() for new, scale in zip((k, v), descales))
            self._pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc), k, v, *descales)
        caches = [buffer.unflatten(0, (-1, self._page)) for buffer in (self._pool.get_key_buffer(layer.layer_id),
                                                                       self._pool.get_value_buffer(layer.layer_id))]
        step, causal = self.forward_metadata, layer.attn_type == AttentionType.DECODER
        left = layer.sliding_window_size  # without the query's own key
        window = (-1, -1) if left is None or left < 0 else (left, 0 if causal else left)
        rows = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        if step.starts is None:
            rows = rows[:, None]
        out = flash_attn_varlen_func(rows, *caches, cu_seqlens_q=step.starts, cu_seqlens_k=None, max_seqlen_q=step.max_query_len,
                                     max_seqlen_k=min(_tensors.rows_of_plan(step.max_seq_len), step.table.shape[1] * self._page),
                                     softmax_scale=layer.scaling, causal=causal, window_size=window, softcap=layer.logit_cap or 0.0,
                                     sink=sinks, seqused_k=step.lengths, page_table=step.table, k_descale=descales[0],
                                     v_descale=descales[1])
        return out.view(len(q), -1)

    forward_decode = forward_extend
