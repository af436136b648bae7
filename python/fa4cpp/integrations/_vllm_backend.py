"""vLLM's attention backend over fa4cpp, as vLLM 0.33 has the interface.

A layer's step is fa4_append, new keys and values by the block table into their pages, and one forward over the pages: what both
take (starts, lengths, the table) stays on the device, so that neither waits for it and CUDA graphs replay them.
"""

from dataclasses import dataclass

import torch
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder, AttentionType

from .._api import flash_attn_varlen_func
from .._errors import NotSupportedError
from ..torch import _append, _tensors
from .vllm import NAME

_FEW_QUERIES = 16  # of a sequence: a plan of their own, as for tokens that are decoded


class Backend(AttentionBackend):
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]

    @staticmethod
    def get_name():
        return NAME

    @staticmethod
    def get_impl_cls():
        return Impl

    @staticmethod
    def get_builder_cls():
        return Builder

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and 8 <= head_size <= 256

    @classmethod
    def supports_compute_capability(cls, capability):
        return (capability.major, capability.minor) in ((9, 0), (10, 0), (10, 3))

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True


@dataclass
class Metadata:
    """A step's batch, the same for all layers: `before` is how many keys each sequence had before the step."""

    num_tokens: int
    max_query_len: int
    max_seq_len: int
    starts: torch.Tensor
    lengths: torch.Tensor
    before: torch.Tensor
    table: torch.Tensor
    causal: bool


class Builder(AttentionMetadataBuilder[Metadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotSupportedError("causal of each request is not in this version; accepted: True or False for all")
        # Maxima are rounded up: few plans serve all steps.
        most = common.max_query_len
        return Metadata(num_tokens=common.num_actual_tokens, max_query_len=most if most <= _FEW_QUERIES else _tensors.rows_of_plan(most),
                        max_seq_len=_tensors.rows_of_plan(common.max_seq_len), starts=common.query_start_loc, lengths=common.seq_lens,
                        before=common.seq_lens - common.query_start_loc.diff(), table=common.block_table_tensor, causal=common.causal)


class Impl(AttentionImpl[Metadata]):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        if alibi_slopes is not None:
            raise NotSupportedError("alibi_slopes is not in this version; accepted: None")
        if attn_type != AttentionType.DECODER:
            raise NotSupportedError(f"attn_type {attn_type} is not in this version; accepted: {AttentionType.DECODER.value}")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype, self.sinks = kv_cache_dtype, sinks
        self._window = None if sliding_window is None else sliding_window - 1  # vLLM counts the query's own key
        self._softcap = logits_soft_cap or 0.0
        self._writes = kv_sharing_target_layer_name is None

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        """query, key, value, output (tokens, heads, dim); kv_cache (pages, heads_kv, page_size, dim + dim_v), of any strides."""
        if output_scale is not None or output_block_scale is not None:
            raise NotSupportedError("a quantised output is not in this version; accepted: output_scale None")
        if attn_metadata is None:  # while vLLM measures memory
            return output.fill_(0)
        step, tokens = attn_metadata, attn_metadata.num_tokens
        k_cache, v_cache = kv_cache.transpose(1, 2).tensor_split((self.head_size,), -1)
        descales = (layer._k_scale, layer._v_scale) if kv_cache.element_size() == 1 else (None, None)
        if self._writes and key is not None:
            _append.run(k_cache, v_cache, key[:tokens], value[:tokens], step.before, step.starts, step.table, None, None, True, *descales, 0)
        window = (-1, -1) if self._window is None else (self._window, 0 if step.causal else self._window)
        flash_attn_varlen_func(query[:tokens], k_cache, v_cache, cu_seqlens_q=step.starts, cu_seqlens_k=None,
                               max_seqlen_q=step.max_query_len, max_seqlen_k=min(step.max_seq_len, step.table.shape[1] * k_cache.shape[1]),
                               softmax_scale=self.scale, causal=step.causal, window_size=window, softcap=self._softcap, sink=self.sinks,
                               out=output[:tokens], seqused_k=step.lengths, page_table=step.table, k_descale=descales[0],
                               v_descale=descales[1])
        return output
