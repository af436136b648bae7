"""A launch of this project's Blackwell forward kernel for ptxemu run: the parameter as fa4 plan --json says it lies in
memory, the traits as the kernel's name says them. All tensors are zeros: no row's maximum rises after its first block, so
that correction does not rescale."""

import json
import math
import re

from . import inputs

NAME = re.compile(r"fwd_sm100.*?FwdTraitsELNS_7ElementE(\d)ELi(\d+)ELi(\d+)ELi(\d)ELi(\d)E")
UNBOUNDED = (1 << 30) - 1
TILE = 128


def layout(fa4=None):
    """(offsets by member, size) of the kernel's parameter, as the library that fills it says."""
    document = inputs.run([inputs.tool("fa4", fa4), "plan", "--device", "emulated:b200", "--json"])
    try:
        params = json.loads(document)["launches"][0]["params"]
        return {field["name"]: field["offset"] for field in params["fields"]}, params["bytes"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise inputs.InputError(f"fa4 plan --json: {error!r}; accepted: launches with params, as this tree's fa4 prints") from error


def at(offsets, member):
    if member not in offsets:
        raise inputs.InputError(f"the kernel's parameter has no {member}; accepted: a fa4 of this tree, which has {', '.join(offsets)}")
    return offsets[member]


def slab(columns):
    return 64 if columns % 64 == 0 else 32


def tensor_map(name, seqlen, columns, box_columns, rows, dtype):
    """(column, head, position, batch); of q and out (column, head of the group, group, position, batch)."""
    width, heads = slab(box_columns), [1, 1] if name in ("q", "out") else [1]
    return {"ptr": name, "dtype": dtype, "dims": [columns, *heads, seqlen, 1],
            "strides_bytes": [2 * columns for _ in heads] + [2 * columns, 2 * columns * seqlen],
            "box": [width, *heads, rows, 1], "swizzle": "128B" if width == 64 else "64B"}


def launch_of(ptx_text, seqlen_q, seqlen_k, causal, params):
    """The launch file as a dictionary: one sequence, one head; `params` is what layout() returns. Throws InputError for a
    kernel of another name."""
    kernel = re.search(r"\.entry\s+([\w$]+)", ptx_text)
    traits = kernel and NAME.search(kernel[1])
    if not traits:
        raise inputs.InputError("--own: the PTX has no kernel fwd_sm100; accepted: this project's Blackwell forward kernel")
    element, d, dv, q_tiles, ctas = map(int, traits.groups())
    dtype = ("bf16", "f16")[element]
    offsets, size = params
    numbers = {"out_stride_seqlen": dv, "out_stride_head": dv, "out_stride_batch": dv * seqlen_q, "batch": 1, "heads_q": 1,
               "seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "head_dim_v": dv, "group": 1, "tile_heads": 1, "tile_heads_per_kv": 1,
               "window_left": UNBOUNDED, "window_right": 0 if causal else UNBOUNDED, "sections": 1, "longest_first": int(causal)}
    fields = [{"offset": at(offsets, n), "i32": v} for n, v in numbers.items()]
    maps = {"q": (seqlen_q, d, d, TILE), "k": (seqlen_k, d, d, TILE // ctas), "v": (seqlen_k, dv, dv // ctas, TILE), "out": (seqlen_q, dv, dv, TILE)}
    fields += [{"offset": at(offsets, n), "tensor_map": tensor_map(n, *shape, dtype)} for n, shape in maps.items()]
    fields += [{"offset": at(offsets, n), "ptr": b} for n, b in (("out_data", "out"), ("lse", "lse"))]
    fields.append({"offset": at(offsets, "scale_log2"), "f32": math.log2(math.e) / math.sqrt(d)})
    tiles = -(-seqlen_q // (TILE * q_tiles * ctas)) * ctas
    buffers = {n: {"zeros": [shape[0], shape[1]], "dtype": dtype} for n, shape in maps.items()}
    buffers["lse"] = {"zeros": [seqlen_q], "dtype": "f32"}
    return {"kernel": kernel[1], "grid": [tiles, 1, 1], "block": [512, 1, 1], "cluster": [ctas, 1, 1], "shared_bytes": 232448,
            "buffers": buffers, "args": [{"struct": {"size": size, "fields": fields}}]}
