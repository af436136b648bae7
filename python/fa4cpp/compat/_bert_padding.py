"""Padded batches to packed ones and back, as flash_attn.bert_padding has it."""

import torch
import torch.nn.functional as F


def index_first_axis(input, indices):
    """The rows `indices` of (rows, ...)."""
    return input.index_select(0, indices)


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """(rows that the masks select, their indices, cu_seqlens, the longest, lengths by attention_mask alone)"""
    allocated = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = allocated.sum(-1, dtype=torch.int32)
    indices = allocated.flatten().nonzero().flatten()
    starts = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    used = attention_mask.sum(-1, dtype=torch.int32)
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, int(lengths.max()), used


def pad_input(hidden_states, indices, batch, seqlen):
    """(batch, seqlen, ...) with zeros where `indices` has no row."""
    padded = hidden_states.new_zeros((batch * seqlen, *hidden_states.shape[1:])).index_copy(0, indices, hidden_states)
    return padded.unflatten(0, (batch, seqlen))
