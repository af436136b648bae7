"""fa4cpp in Hugging Face Transformers.

    import fa4cpp.integrations.transformers
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="flash_fa4cpp")

Padded batches are packed, packed ones stay so. What fa4cpp does not do (dropout in training, a mask of four
dimensions) is refused in its words.
"""

import functools

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, modeling_flash_attention_utils
from transformers.masking_utils import flash_attention_mask

from .._api import flash_attn_func, flash_attn_varlen_func
from .._errors import NotSupportedError
from ..compat import fa2
from ..compat._bert_padding import index_first_axis, pad_input, unpad_input

NAME = "flash_fa4cpp"  # "flash" makes Transformers hand over padding masks of two dimensions


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None,
              is_causal=None, s_aux=None, position_ids=None, cu_seq_lens_q=None, cu_seq_lens_k=None, max_length_q=None,
              max_length_k=None, **others):
    """(out (batch, seqlen, heads, head_dim), None) of q, k, v of (batch, heads, seqlen, head_dim)."""
    if dropout:
        raise NotSupportedError(f"attention_dropout {dropout} is not in this version; accepted: 0.0, or model.eval()")
    if others.get("cache") is not None or others.get("block_table") is not None:
        raise NotSupportedError("a paged cache of Transformers is not in this version; accepted: its other caches")
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    causal = module.is_causal if is_causal is None else is_causal
    window = (-1, -1) if sliding_window is None or sliding_window > k.shape[1] else (sliding_window - 1, sliding_window - 1)
    options = dict(softmax_scale=scaling, causal=causal, window_size=window, softcap=softcap or 0.0, sink=s_aux)
    if attention_mask is not None:
        return _padded(q, k, v, attention_mask, options), None
    starts = (cu_seq_lens_q, cu_seq_lens_k)
    if cu_seq_lens_q is None and position_ids is not None and len(q) == 1 and q.shape[1] == k.shape[1]:
        starts = (_starts(position_ids),) * 2
    if starts[0] is not None:
        out = flash_attn_varlen_func(*(tensor.flatten(0, 1) for tensor in (q, k, v)), cu_seqlens_q=starts[0], cu_seqlens_k=starts[1],
                                     max_seqlen_q=max_length_q, max_seqlen_k=max_length_k, **options)
        return out.unflatten(0, q.shape[:2]), None
    return flash_attn_func(q, k, v, **options), None


def _starts(position_ids):
    """cu_seqlens of one row in which positions begin anew; None when they do not."""
    if position_ids.dim() != 2 or position_ids.shape[0] != 1:
        return None
    begins = (position_ids[0] == position_ids.min()).nonzero().flatten()  # not at 0 in models that count from behind the padding's number
    if begins.numel() < 2:
        return None
    return torch.cat([begins, begins.new_tensor([position_ids.shape[1]])]).to(torch.int32)


def _padded(q, k, v, mask, options):
    """Attention over the keys that the mask of (batch, keys) keeps. Where positions matter, of the rows that it keeps alone: packed, and
    padded again."""
    if mask.dim() != 2:
        raise NotSupportedError(f"attention_mask has shape {tuple(mask.shape)}; accepted: (batch, keys), of padding")
    k, v = (tensor[:, :mask.shape[1]] for tensor in (k, v))  # a static cache is longer
    batch, rows = q.shape[:2]
    packed_k, kept, starts_k, longest_k, _ = unpad_input(k, mask)
    packed_v = index_first_axis(v.flatten(0, 1), kept)
    counts_positions = options["causal"] or options["window_size"] != (-1, -1)
    if rows == 1 or not counts_positions:  # the mask may be of others than q's rows: an encoder's, beside a decoder's
        return flash_attn_varlen_func(q, packed_k, packed_v, cu_seqlens_q=None, cu_seqlens_k=starts_k, max_seqlen_q=rows, max_seqlen_k=longest_k,
                                      **options)
    packed_q, kept_q, starts_q, longest_q, _ = unpad_input(q, mask[:, -rows:])
    out = flash_attn_varlen_func(packed_q, packed_k, packed_v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_q=longest_q,
                                 max_seqlen_k=longest_k, **options)
    return pad_input(out, kept_q, batch, rows)


def _answer_imports():
    """Transformers looks up the functions of every implementation whose name says flash: flash-attn's packages, else its hub."""
    look_up = modeling_flash_attention_utils._lazy_imports

    def look_up_here_first(implementation, *args, **kwargs):
        if implementation != NAME:
            return look_up(implementation, *args, **kwargs)
        return (fa2.flash_attn_func, fa2.flash_attn_varlen_func, fa2.flash_attn_with_kvcache,
                modeling_flash_attention_utils._pad_input, modeling_flash_attention_utils._unpad_input)

    modeling_flash_attention_utils._lazy_imports = look_up_here_first


def _join_lists():
    """Models whose attention few do (gpt-oss, with sinks) list what may run it. What flash-attn 4 does in Transformers is done here, and so
    the models that list it take this one too; for any other name they would look for their first one on the hub."""
    check = PreTrainedModel._check_and_adjust_attn_implementation

    @functools.wraps(check)
    def check_joined(model, attn_implementation, *args, **kwargs):
        listed = getattr(model, "_compatible_flash_implementations", None) or []
        if attn_implementation == NAME and "flash_attention_4" in listed and NAME not in listed:
            model._compatible_flash_implementations = [*listed, NAME]
        return check(model, attn_implementation, *args, **kwargs)

    PreTrainedModel._check_and_adjust_attn_implementation = check_joined


_answer_imports()
_join_lists()
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, flash_attention_mask)
