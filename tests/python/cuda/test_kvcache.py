"""Caches as engines hold them: turned queries, rows by number, and poison wherever no key lies."""

import pytest
import torch

import fa4cpp
from plain import DEVICE, assert_lse, assert_near, attention, some

GARBAGE = 2147480000  # a page number that lies far outside of any cache


def on_device(numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype, device=DEVICE)


def turned(rows, positions, cos, sin):
    """(rows, heads, dim) of which row i is turned by row positions[i], pairs (2 i, 2 i + 1), in double precision."""
    half = cos.shape[1]
    x, y = rows[..., :2 * half].double().unflatten(-1, (half, 2)).unbind(-1)
    c, s = (table[positions, None].double() for table in (cos, sin))
    return torch.cat([torch.stack([x * c - y * s, y * c + x * s], -1).flatten(-2), rows[..., 2 * half:].double()], -1)


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("packed", (True, False))
def test_rotary_and_rows_of_a_cache(causal, packed):
    """Lengths, indices and starts stay on the GPU."""
    used, rows, capacity = (17, 250), (3, 1), 300
    q, new = some(2, 3, 4, 64), [some(2, 2, 2, 64, seed=seed) for seed in (1, 2)]
    caches = [some(4, capacity, 2, 64, seed=seed) for seed in (3, 4)]
    angles = torch.arange(capacity)[:, None] * torch.linspace(1, 0.01, 16)
    cos, sin = (table.to(DEVICE, q.dtype) for table in (angles.cos(), angles.sin()))
    given = dict(cache_seqlens=on_device(used), cache_batch_idx=on_device(rows), rotary_cos=cos, rotary_sin=sin, causal=causal)
    arrays = [q, *(cache.clone() for cache in caches), *new]
    if packed:
        given.update(cu_seqlens_q=on_device([0, 3, 6]), cu_seqlens_k_new=on_device([0, 2, 4]), max_seqlen_q=3)
        arrays = [tensor.flatten(0, 1) if tensor.shape[0] == 2 else tensor for tensor in arrays]
    out = fa4cpp.flash_attn_with_kvcache(*arrays, **given).reshape(2, 3, 4, 64)
    for b, length in enumerate(used):
        seen = [cache[rows[b], :length] for cache in caches]
        k = torch.cat([seen[0], turned(new[0][b], torch.arange(length, length + 2), cos, sin).to(q.dtype)])
        row = turned(q[b], torch.arange(length, length + 3) if causal else torch.full((3,), length), cos, sin).to(q.dtype)
        v = torch.cat([seen[1], new[1][b]])
        assert torch.equal(arrays[2][rows[b], :length + 2], v)
        exact, near = (attention(row[None], k[None], v[None], causal=causal, dtype=dtype)[0] for dtype in (torch.float64, q.dtype))
        assert_near(out[b:b + 1], exact, near)


@pytest.mark.parametrize("page_size", (1, 16, 64))
@pytest.mark.parametrize("rows", (1, 5))
def test_nothing_is_read_where_no_key_lies(page_size, rows):
    """NaN in all pages that are nobody's and behind each last key; table tails far outside of the cache; a sequence without keys."""
    lengths, pages_per_seq = (3, 0, 517, 64), 600 // page_size + 1
    q = some(4, rows, 8, 128)
    keys = [[some(length, 2, 128, seed=10 * b + part) for part in (1, 2)] for b, length in enumerate(lengths)]
    used_pages = [-(-length // page_size) for length in lengths]
    free = torch.randperm(sum(used_pages) + 7, generator=torch.Generator().manual_seed(0)).tolist()
    pages = [torch.full((len(free), page_size, 2, 128), float("nan"), dtype=q.dtype, device=DEVICE) for _ in "kv"]
    table = torch.full((4, pages_per_seq), GARBAGE, dtype=torch.int32)
    for b, length in enumerate(lengths):
        for page in range(used_pages[b]):
            table[b, page] = at = free.pop()
            for cache, source in zip(pages, keys[b]):
                part = source[page * page_size:(page + 1) * page_size]
                cache[at, :len(part)] = part
    out, lse = fa4cpp.flash_attn_with_kvcache(q, *pages, cache_seqlens=on_device(lengths), page_table=table.to(DEVICE), causal=True,
                                              return_lse=True)
    for b, length in enumerate(lengths):
        if length == 0:
            assert not out[b].any() and torch.isneginf(lse[b]).all()
            continue
        k, v = (part[None] for part in keys[b])
        (exact, exact_lse), (near, _) = (attention(q[b:b + 1], k, v, causal=True, dtype=dtype) for dtype in (torch.float64, q.dtype))
        assert_near(out[b:b + 1], exact, near)
        assert_lse(lse[b:b + 1], exact_lse)


@pytest.mark.parametrize("heads_outside", (True, False))
def test_keys_and_values_in_one_tensor_of_pages(heads_outside):
    """(pages, 2, heads, rows, dim) or (pages, 2, rows, heads, dim), as engines lay them: append writes into both halves, and no more."""
    shape = (9, 2, 2, 16, 64) if heads_outside else (9, 2, 16, 2, 64)
    both = some(*shape)
    k_cache, v_cache = (part.transpose(1, 2) if heads_outside else part for part in both.unbind(1))
    wanted = [part.clone() for part in (k_cache, v_cache)]
    new = [some(2, 20, 2, 64, seed=seed) for seed in (1, 2)]
    table, used = [[3, 5, 0], [8, 2, 1]], (7, 0)
    for cache, rows in zip(wanted, new):
        for b, length in enumerate(used):
            for i in range(20):
                cache[table[b][(length + i) // 16], (length + i) % 16] = rows[b, i]
    fa4cpp.append(k_cache, v_cache, *new, cache_seqlens=on_device(used), page_table=on_device(table))
    assert torch.equal(k_cache, wanted[0]) and torch.equal(v_cache, wanted[1])
    q = some(2, 1, 4, 64, seed=3)
    now = on_device([length + 20 for length in used])
    out = fa4cpp.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=now, page_table=on_device(table), causal=True)
    apart = [cache.contiguous() for cache in wanted]
    assert torch.equal(out, fa4cpp.flash_attn_with_kvcache(q, *apart, cache_seqlens=now, page_table=on_device(table), causal=True))
