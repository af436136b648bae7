"""The forward on a GPU against plain attention in double precision."""

import pytest
import torch

import fa4cpp
from plain import DEVICE, HALVES, assert_lse, assert_near, attention, packed, some, tensors

CASES = {
    "full": ({}, {}),
    "causal": ({}, {"causal": True}),
    "fp16": ({"dtype": torch.float16}, {"causal": True}),
    "head_dim 64": ({"dim": 64, "heads": 6, "heads_kv": 2}, {"causal": True}),
    "head_dim 96, 40 of v": ({"dim": 96, "dim_v": 40}, {}),
    "head_dim 256": ({"dim": 256, "rows": 130}, {"causal": True}),
    "head_dim 192, 128 of v": ({"dim": 192, "dim_v": 128}, {"causal": True}),
    "one key head": ({"heads": 8, "heads_kv": 1}, {"causal": True}),
    "decoding": ({"rows": 1, "keys": 513}, {"causal": True}),
    "more queries than keys": ({"rows": 300, "keys": 100}, {"causal": True}),
    "window": ({"rows": 300}, {"window": (64, 0)}),
    "window ahead": ({"rows": 300, "keys": 400}, {"window": (10, 70)}),
    "window and causal": ({"rows": 300}, {"window": (50, 20), "causal": True}),
    "window before the position": ({"rows": 300}, {"window": (90, -20)}),
    "window after the position": ({"rows": 300, "keys": 400}, {"window": (-5, None)}),
    "softcap": ({}, {"softcap": 5.0, "causal": True}),
    "sink in bf16": ({}, {"sink": torch.bfloat16, "causal": True}),
    "sink in fp16": ({"heads": 3, "heads_kv": 3}, {"sink": torch.float16}),
    "sink": ({}, {"sink": True, "causal": True}),
    "sink, rows that see nothing": ({"rows": 300, "keys": 100}, {"sink": True, "causal": True}),
    "scale": ({}, {"scale": 0.3}),
    "negative scale": ({}, {"scale": -0.1, "causal": True}),
}


def call_options(options, heads):
    """(for fa4cpp, for plain attention)"""
    plain = dict(options)
    sink = plain.pop("sink", None)
    if sink:
        plain["sink"] = some(heads, dtype=torch.float32 if sink is True else sink, seed=3)
    ours = dict(plain)
    ours["softmax_scale"] = ours.pop("scale", None)
    if "window" in ours:
        ours["window_size"] = fa4cpp.Window(*ours.pop("window"))
    return ours, plain


@pytest.mark.parametrize("name", CASES)
def test_dense(name):
    shape, options = CASES[name]
    q, k, v = tensors(**shape)
    ours, plain = call_options(options, q.shape[2])
    support = fa4cpp.supports(q, k, v, **ours)
    if not support:
        pytest.skip(support.reason)
    out, lse = fa4cpp.flash_attn_func(q, k, v, return_lse=True, **ours)
    assert (out.dtype, lse.dtype, out.device) == (q.dtype, torch.float32, q.device)
    exact, exact_lse = attention(q, k, v, **plain)
    assert_near(out, exact, attention(q, k, v, dtype=q.dtype, **plain)[0])
    assert_lse(lse, exact_lse)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("with_maxima", (False, True))
def test_packed(dtype, causal, with_maxima):
    starts_q, starts_k = [0, 100, 100, 317, 350], [0, 130, 190, 480, 480]
    q, k, v = (some(350, 4, 128, dtype=dtype), some(480, 2, 128, dtype=dtype, seed=1), some(480, 2, 128, dtype=dtype, seed=2))
    options = dict(max_seqlen_q=217, max_seqlen_k=290) if with_maxima else dict(max_seqlen_q=None, max_seqlen_k=None)
    indices = [torch.tensor(starts, dtype=torch.int32 if with_maxima else torch.int64, device=DEVICE) for starts in (starts_q, starts_k)]
    out, lse = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=indices[0], cu_seqlens_k=indices[1], causal=causal, return_lse=True,
                                             **options)
    exact, exact_lse = packed(lambda *each: attention(*each, causal=causal), q, k, v, starts_q, starts_k)
    near, _ = packed(lambda *each: attention(*each, causal=causal, dtype=dtype), q, k, v, starts_q, starts_k)
    assert_near(out, exact, near)
    assert_lse(lse, exact_lse)


def test_used_keys():
    q, k, v = tensors(rows=200, keys=260)
    k[0, 170:] = torch.nan  # which never reaches a result
    v[0, 170:] = torch.nan
    out = fa4cpp.flash_attn_func(q, k, v, causal=True, seqused_k=[170, 260])
    exact = attention(q[:1], k[:1, :170], v[:1, :170], causal=True)[0]
    near = attention(q[:1], k[:1, :170], v[:1, :170], causal=True, dtype=q.dtype)[0]
    assert_near(out[:1], exact, near)


@pytest.mark.parametrize("window", ((None, None), (40, 10)))
@pytest.mark.parametrize("causal", (False, True))
def test_used_queries(causal, window):
    """Positions count from the used lengths, in dense rows and in packed ones that leave room."""
    used, starts = [90, 0, 200], [0, 120, 150, 360]
    q, k, v = tensors(batch=3, rows=200, keys=260)
    rows = some(370, 4, 128, seed=4)
    for b, length in enumerate(used):
        q[b, length:] = rows[starts[b] + length:starts[b + 1]] = torch.nan
    options = dict(causal=causal, window_size=fa4cpp.Window(*window), seqused_q=torch.tensor(used, device=DEVICE), return_lse=True)
    out, lse = fa4cpp.flash_attn_func(q, k, v, **options)
    given = torch.full_like(rows, 7)
    starts_q = torch.tensor(starts, device=DEVICE)
    out_rows, lse_rows = fa4cpp.flash_attn_varlen_func(rows, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=None, max_seqlen_q=210,
                                                       max_seqlen_k=None, out=given, **options)
    assert out_rows is given and supported_with(q, k, v, options)
    for b, length in enumerate(used):
        for each, its_lse, its_q in ((out[b], lse[b], q[b]), (out_rows[starts[b]:], lse_rows[:, starts[b]:], rows[starts[b]:])):
            sides = its_q[None, :length], k[b:b + 1], v[b:b + 1]
            exact, exact_lse = attention(*sides, causal=causal, window=window)
            if length:
                assert_near(each[None, :length], exact, attention(*sides, causal=causal, window=window, dtype=q.dtype)[0])
                assert_lse(its_lse[None, :, :length], exact_lse)
        assert not out[b, length:].any() and not lse[b, :, length:].any()
        assert (given[starts[b] + length:starts[b + 1]] == 7).all()
    assert (given[starts[-1]:] == 7).all()


def supported_with(q, k, v, options):
    return fa4cpp.supports(q, k, v, **{name: value for name, value in options.items() if name != "return_lse"})


def test_queries_over_packed_keys():
    q, k, v = some(2, 33, 4, 64), some(150, 2, 64, seed=1), some(150, 2, 64, seed=2)
    out = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=None, cu_seqlens_k=torch.tensor([0, 90, 150], device=DEVICE),
                                        max_seqlen_q=None, max_seqlen_k=90, causal=True)
    for b, part in enumerate((slice(0, 90), slice(90, 150))):
        exact, near = (attention(q[b:b + 1], k[None, part], v[None, part], causal=True, dtype=dtype)[0] for dtype in (torch.float64, q.dtype))
        assert_near(out[b:b + 1], exact, near)


def test_how_tensors_lie():
    """Views are read as they lie, or copied where a GPU cannot: the result is that of contiguous tensors."""
    q, k, v = tensors()
    wanted = fa4cpp.flash_attn_func(q, k, v, causal=True)
    heads_first = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    assert torch.equal(fa4cpp.flash_attn_func(*heads_first, causal=True), wanted)
    # Elements 16 bytes away from no boundary, rows of 130 elements, and a last dimension that is not contiguous.
    odd = [torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape) for tensor in (q, k, v)]
    assert torch.equal(fa4cpp.flash_attn_func(*odd, causal=True), wanted)
    wide = [torch.nn.functional.pad(tensor, (0, 2))[..., :-2] for tensor in (q, k, v)]
    assert torch.equal(fa4cpp.flash_attn_func(*wide, causal=True), wanted)
    turned = [tensor.transpose(2, 3).contiguous().transpose(2, 3) for tensor in (q, k, v)]
    assert torch.equal(fa4cpp.flash_attn_func(*turned, causal=True), wanted)
    # One key head by a stride of 0.
    k, v = k[:, :, :1], v[:, :, :1]
    given = fa4cpp.flash_attn_func(q, k.expand(-1, -1, 4, -1), v.expand(-1, -1, 4, -1))
    assert_near(given, attention(q, k, v)[0], attention(q, k, v, dtype=q.dtype)[0])


def test_an_out_of_ones_own():
    q, k, v = tensors()
    wanted = fa4cpp.flash_attn_func(q, k, v)
    out = torch.empty_like(q)
    assert fa4cpp.flash_attn_func(q, k, v, out=out) is out
    assert torch.equal(out, wanted)
    strided = torch.zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3], dtype=q.dtype, device=DEVICE).transpose(1, 2)
    fa4cpp.flash_attn_func(q, k, v, out=strided)
    assert torch.equal(strided, wanted)


@pytest.mark.parametrize("batch, rows, keys", ((0, 5, 5), (2, 0, 5), (2, 5, 0)))
def test_nothing_to_do(batch, rows, keys):
    out, lse = fa4cpp.flash_attn_func(*tensors(batch=batch, rows=rows, keys=keys), return_lse=True)
    assert out.shape == (batch, rows, 4, 128) and not out.any()
    assert torch.isneginf(lse).all()


def test_refusals():
    q, k, v = tensors()
    with pytest.raises(fa4cpp.NotSupportedError, match="f32"):
        fa4cpp.flash_attn_func(q.float(), k.float(), v.float())
    assert not fa4cpp.supports(q.float(), k.float(), v.float())
    assert fa4cpp.supports(q, k, v, causal=True)
    with pytest.raises(fa4cpp.InvalidArgumentError, match="k is on the device cpu; accepted: cuda"):
        fa4cpp.flash_attn_func(q, k.cpu(), v)
    with pytest.raises(fa4cpp.NotSupportedError, match="dropout_p"):
        fa4cpp.flash_attn_func(q, k, v, dropout_p=0.5)


test_refusals = pytest.mark.cuda(test_refusals)


def test_partials_merge():
    q, k, v = tensors()
    whole, whole_lse = fa4cpp.flash_attn_func(q, k, v, return_lse=True)
    parts = [fa4cpp.flash_attn_func(q, k[:, part], v[:, part], return_lse=True) for part in (slice(0, 77), slice(77, 200))]
    out, lse = fa4cpp.merge_partials(*zip(*parts))
    assert (out.float() - whole.float()).abs().max().item() < 0.02
    assert (lse - whole_lse).abs().max().item() < 1e-4


def test_a_cache():
    q, k, v = some(2, 1, 4, 64), some(2, 1, 2, 64, seed=1), some(2, 1, 2, 64, seed=2)
    keys, values = some(2, 300, 2, 64, seed=3), some(2, 300, 2, 64, seed=4)
    used = torch.tensor([17, 250], dtype=torch.int32, device=DEVICE)
    out = fa4cpp.flash_attn_with_kvcache(q, keys, values, k, v, cache_seqlens=used, causal=True)
    for b, length in enumerate((17, 250)):
        assert torch.equal(keys[b, length], k[b, 0])
        parts = [tensor[b:b + 1, :length + 1] for tensor in (keys, values)]
        exact, near = (attention(q[b:b + 1], *parts, dtype=dtype)[0] for dtype in (torch.float64, q.dtype))
        assert_near(out[b:b + 1], exact, near)


@pytest.mark.parametrize("page_size", (16, 24))
def test_a_cache_in_pages(page_size):
    """New keys go to pages that lie in any order, and are turned by the library; lengths stay on the GPU."""
    q, k, v = some(2, 2, 4, 64), some(2, 2, 2, 64, seed=1), some(2, 2, 2, 64, seed=2)
    keys, values = some(2, 4 * page_size, 2, 64, seed=3), some(2, 4 * page_size, 2, 64, seed=4)
    lengths = (17, 3 * page_size - 1)
    used = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    table = torch.randperm(9, generator=torch.Generator().manual_seed(5))[:8].reshape(2, 4).to(DEVICE)
    pages = [torch.full((9, page_size, 2, 64), float("nan"), dtype=keys.dtype, device=DEVICE) for _ in "kv"]
    angles = torch.arange(4 * page_size)[:, None] * torch.linspace(1, 0.01, 16)
    cos, sin = angles.cos().to(DEVICE), angles.sin().to(DEVICE)
    for cache, source in zip(pages, (keys, values)):
        cache[table] = source.unflatten(1, (4, page_size))
    now = fa4cpp.append(*pages, k, v, cache_seqlens=used, page_table=table, rotary_cos=cos, rotary_sin=sin)
    assert now.device == used.device and now.tolist() == [length + 2 for length in lengths]
    out = fa4cpp.flash_attn_with_kvcache(q, *pages, cache_seqlens=now, page_table=table, causal=True)
    for b, length in enumerate(lengths):
        rows = slice(length, length + 2)
        pairs = k[b, :, :, :32].double().unflatten(-1, (16, 2))
        c, s = (part[rows, None].double() for part in (cos, sin))
        x, y = pairs.unbind(-1)
        keys[b, rows] = k[b]
        keys[b, rows, :, :32] = torch.stack([x * c - y * s, y * c + x * s], -1).flatten(-2).to(keys.dtype)
        values[b, rows] = v[b]
        assert torch.equal(pages[1][table[b]].flatten(0, 1)[:length + 2], values[b, :length + 2])
        assert (pages[0][table[b]].flatten(0, 1)[:length + 2] - keys[b, :length + 2]).abs().max().item() < 0.04
        parts = [tensor[b:b + 1, :length + 2] for tensor in (keys, values)]
        exact, near = (attention(q[b:b + 1], *parts, causal=True, dtype=dtype)[0] for dtype in (torch.float64, q.dtype))
        assert_near(out[b:b + 1], exact, near)
