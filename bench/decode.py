#!/usr/bin/env python3
"""Decoding with fa4 on a GPU against cuDNN and FlashAttention-3, interleaved in one run: one query a
sequence over dense keys and over keys in pages.

    python3 bench/decode.py --lib build/release/lib/libfa4.so [--heads 64:8,32:8] [--sizes 1x1024,8x8192]
        [--pages 16,128] [--split-keys 0,512] [--planned 131072] [--prefix 4000] [--window 1024] [--softcap 30] [--mixed] [--e4m3]
        [--warm] [--pool 16] [--apart] [--rounds 9] [--pause 0.05] [--fa3 FILE] [--json F] [--markdown F]
    python3 bench/decode.py --lib before=OLD/libfa4.so --lib after=NEW/libfa4.so
    python3 bench/decode.py --lib libfa4.so --heads 8:1 --sizes 8x4500 --pages 16 --prefix 4000
    python3 bench/decode.py --lib libfa4.so --sizes 1x65536,8x65536 --pages 16 --window 1024

cuDNN comes through PyTorch, on dense keys; FlashAttention-3 is a library of its PyTorch operators. Page
tables are shuffled. Calls are replayed from CUDA graphs, so that no time of the host is in them. Caches
are read in turn, at least 256 MB of them, so that the L2 cache serves none; with --warm there is one. With
--pool they have so many GB in all, and a graph as many calls in a row. With --apart a small kernel stands
behind each call, so that the next one finds the GPU empty; a call's time has its in it.

--split-keys repeats fa4's calls with keys cut at these multiples; 0 leaves that to the plan. --planned
repeats those over pages with plans for so many keys, and page tables as wide: what a sequence has is in
device memory alone.

--prefix repeats fa4's calls over pages with so many first keys that all of a batch share: "shared" has
their pages in the table of every sequence, "prefix" passes them once, as prefix_pages; FlashAttention-3 has
the first of both.

--window repeats fa4's calls with a window of so many keys, the query's own among them (window_left is one
less): "window" sees the last ones of all that there are, "only" is a call over the first ones alone, as if
there were no more. Caches are then 256 MB x keys / window or more, for the L2 cache to serve no window
either.

--softcap caps the scores of fa4 and FlashAttention-3; cuDNN, which has none, is left out.

--mixed repeats the calls over pages with lengths that differ: "mixed" has sequences of 1 to KEYS keys, drawn
by a seed, "equal" as many in all, the same for each; the plan is for KEYS keys in both.

--e4m3 repeats fa4's calls with the same keys and values as bytes, a descale for each sequence, head and 128
keys; FlashAttention-3 takes bytes of q too, and a descale for each sequence and head.

Before that a few heads of each result are compared with attention in f32: the largest error, as a share
of what plain attention in bf16 may have (docs/api.md), or of a tenth of the largest number where a peer rounds q to bytes. A wrong result makes the exit status 1.

A figure is the median of rounds, in microseconds a call, with the GB/s of keys and values that it reads; what
sequences share counts once. A ratio is the time through cuDNN's; below 1 is faster.
"""
import argparse
import functools
import itertools
import json
import math
import os
import random
import statistics
import sys
from typing import NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
from interleaved import interleave, random_tensor, reason_of, table
from comparison import parse_libraries
from gradients import capped

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

COLD_BYTES = 256e6
DESCALED_KEYS = 128
CHECKED = 6  # pairs of a sequence and a key head


def pairs_of(text, separator):
    return [tuple(int(part) for part in item.split(separator)) for item in text.split(",")]


def numbers(text):
    return [int(part) for part in text.split(",") if part]


class Reads(NamedTuple):
    """What a variant reads."""

    page: int = 0  # 0: dense keys
    e4m3: bool = False
    part: str = ""  # of the keys; one of parts_of()


SHARED = ("shared", "prefix")
WINDOW = ("window", "only")
MIXED = ("mixed", "equal")


def parts_of(asked, paged):
    """All keys; all with the first ones shared, by tables or as a prefix; those of a window, or no more in the cache; other lengths."""
    return ["", *(SHARED if asked.prefix and paged else ()), *(WINDOW if asked.window else ()), *(MIXED if asked.mixed and paged else ())]


class Caches:
    """Queries and as many caches as it takes; a call reads one of them.

    Each has room for the keys in whole pages: what is behind the keys is not read.
    """

    def __init__(self, heads, size, asked):
        (heads_q, heads_kv), (batch, keys), head_dim = heads, size, asked.head_dim
        self.shape = (heads_q, heads_kv, batch, keys, head_dim)
        self.prefix, self.window, self.softcap = asked.prefix, asked.window, asked.softcap
        draw = random.Random(f"{batch}x{keys}")
        mixed = [draw.randint(1, keys) for _ in range(batch)]
        self.lengths = dict(mixed=mixed, equal=[round(statistics.mean(mixed))] * batch)
        unit = math.lcm(*asked.pages, DESCALED_KEYS if asked.e4m3 else 1)
        self.room = -(-keys // unit) * unit
        least = min(self.bytes_of(Reads(e4m3=asked.e4m3, part=part)) for part in parts_of(asked, bool(asked.pages)))
        whole = self.bytes_of(Reads()) * self.room // keys
        self.count = 1 if asked.warm else max(1, -(-int(COLD_BYTES) // least), int(1e9 * asked.pool) // whole)
        self.q = random_tensor(batch, 1, heads_q, head_dim)
        self.k, self.v = ([torch.randn(batch, self.room, heads_kv, head_dim, device="cuda", dtype=torch.bfloat16)
                           for _ in range(self.count)] for _ in range(2))
        self.quantised = [[self.quantise(x) for x in tensors] for tensors in (self.k, self.v)] if asked.e4m3 else None
        self.used = {part: torch.tensor([self.keys_in(part, i) for i in range(batch)], device="cuda", dtype=torch.int32)
                     for part in ("", *SHARED, *WINDOW, *MIXED)}
        self.tables = {}
        self.apart = torch.zeros(1024, device="cuda") if asked.apart else None

    def end_of_call(self):
        if self.apart is not None:
            self.apart.zero_()

    @staticmethod
    def quantise(x):
        """The bytes of x, and their descales, (batch, blocks, heads)."""
        blocks = x.view(x.shape[0], -1, DESCALED_KEYS, *x.shape[2:])
        descales = blocks.abs().amax((2, 4)).float() / 448
        return (blocks / descales[:, :, None, :, None]).to(torch.float8_e4m3fn).view(x.shape), descales

    def quantised_by_head(self):
        """For peers that have one descale a sequence and head."""
        def quantise(x):
            descales = x.abs().amax((1, 3)).float() / 448
            return (x / descales[:, None, :, None]).to(torch.float8_e4m3fn), descales

        return [[quantise(x) for x in tensors] for tensors in (self.k, self.v)]

    def bytes_of(self, reads):
        """Of the keys and values that a call reads."""
        _, heads_kv, batch, _, dim = self.shape
        seen = (self.seen(reads.part, sequence) for sequence in range(batch))
        rows = sum(keys.stop - keys.start for keys in seen)
        if reads.part in SHARED:
            rows -= (batch - 1) * self.prefix
        return 2 * rows * heads_kv * dim * (1 if reads.e4m3 else 2)

    def most_keys(self, part):
        """What calls are planned for."""
        return self.window if part == "only" else self.shape[3]

    def keys_in(self, part, sequence):
        """Of a sequence, seen or not."""
        return self.lengths[part][sequence] if part in MIXED else self.most_keys(part)

    def seen(self, part, sequence):
        """Which of the keys the query sees."""
        keys = self.keys_in(part, sequence)
        return slice(keys - self.window if part == "window" else 0, keys)

    def dense(self, tensor):
        """A cache without what is behind the keys."""
        return tensor[:, :self.shape[3]]

    def table_of(self, page, part=""):
        """The pages of every sequence; where the first keys are shared, those are the first sequence's."""
        if page not in self.tables:
            self.tables[page] = torch.randperm(self.pages_of(page), device="cuda").to(torch.int32).view(self.shape[2], -1)
        table = self.tables[page]
        if part in SHARED:
            table = table.clone()
            table[:, :self.prefix // page] = table[0, :self.prefix // page]
        return table

    def pages_of(self, page):
        """Of a cache."""
        return self.shape[2] * self.room // page

    def keys_of(self, sequence, head, reads):
        """K and V that a sequence sees in the first cache, (keys, head_dim) each, in f32."""
        seen, page = self.seen(reads.part, sequence), reads.page
        if reads.e4m3:
            return [x[seen] for x in self.numbers_of_bytes(sequence, head, reads)]
        if page == 0:
            return self.k[0][sequence, seen, head].float(), self.v[0][sequence, seen, head].float()
        pages = self.table_of(page, reads.part)[sequence].long()
        _, heads_kv, _, _, dim = self.shape
        return [x[0].view(-1, page, heads_kv, dim)[pages, :, head].reshape(-1, dim)[seen].float() for x in (self.k, self.v)]

    def numbers_of_bytes(self, sequence, head, reads):
        _, heads_kv, _, _, dim = self.shape
        found, page = [], reads.page
        for data, descales in (tensors[0] for tensors in self.quantised):
            rows, factors = data[sequence, :, head], descales[sequence, :, head]
            if page:
                pages = self.table_of(page, reads.part)[sequence].long()
                rows = data.view(torch.uint8).view(-1, page, heads_kv, dim)[pages, :, head].reshape(-1, dim).view(torch.float8_e4m3fn)
                if page == DESCALED_KEYS:  # then they are the pages'
                    factors = descales.view(-1, heads_kv)[pages, head]
            found.append(rows.float() * factors.repeat_interleave(DESCALED_KEYS)[:, None])
        return found


def widened(table, columns):
    """A copy; behind the entries of the keys it has those that nobody may read."""
    wide = torch.full((len(table), max(columns, table.shape[1])), 2147480000, device="cuda", dtype=torch.int32)
    wide[:, :table.shape[1]] = table
    return wide


def paged(caches, reads, planned):
    """What a problem and its executions have of pages: fields, and tensors by their names."""
    page, keys = reads.page, caches.most_keys(reads.part)
    table, fields, tensors = caches.table_of(page, reads.part)[:, :math.ceil(keys / page)], {}, {}
    if reads.part == "prefix":
        shared, table = table[0, :caches.prefix // page].contiguous(), table[:, caches.prefix // page:]
        fields, tensors = dict(prefix_len=caches.prefix), dict(prefix_pages=shared)
    table = widened(table, planned // page)
    fields |= dict(layout_kv=fa4_ctypes.PAGED, page_size=page, num_pages=caches.pages_of(page), pages_per_seq=table.shape[1],
                   seqlen_k=max(keys, planned), has_seqused_k=1)
    return fields, dict(tensors, seqused_k=caches.used[reads.part], page_table=table)


def fa4(library, caches, reads, split_keys, planned):
    """One call of each cache, and the outputs of the first."""
    heads_q, heads_kv, batch, _, dim = caches.shape
    problem = dict(dtype=fa4_ctypes.BF16, batch=batch, seqlen_q=1, seqlen_k=caches.most_keys(reads.part), heads_q=heads_q,
                   heads_kv=heads_kv, head_dim=dim, split_keys=split_keys, softcap=caches.softcap)
    if reads.part == "window":
        problem |= dict(has_window=1, window_left=caches.window - 1, window_right=-1)
    tensors = [dict(k=k.data_ptr(), v=v.data_ptr()) for k, v in zip(caches.k, caches.v)]
    if reads.e4m3:
        strides = (caches.room // DESCALED_KEYS * heads_kv, heads_kv, 1)
        problem |= dict(kv_dtype=fa4_ctypes.E4M3, has_descales=1, descale_block=DESCALED_KEYS,
                        k_descale_strides=strides, v_descale_strides=strides)
        tensors = [dict(k=k.data_ptr(), v=v.data_ptr(), k_descale=k_descale.data_ptr(), v_descale=v_descale.data_ptr())
                   for (k, k_descale), (v, v_descale) in zip(*caches.quantised)]
    if reads.page:
        fields, pages = paged(caches, reads, planned)
    else:
        strides = (caches.room * heads_kv * dim, heads_kv * dim, dim)
        fields, pages = dict(k_strides=strides, v_strides=strides), {}
    problem |= fields
    index = {name: tensor.data_ptr() for name, tensor in pages.items()}
    operation = library.prepare(**problem)
    workspace = torch.empty(max(operation.workspace_bytes, 256), device="cuda", dtype=torch.uint8)
    out = torch.empty_like(caches.q)

    def run(keep=(workspace, pages)):
        stream = torch.cuda.current_stream().cuda_stream
        for cache in tensors:
            operation.bind(q=caches.q.data_ptr(), **cache, out=out.data_ptr(), **index, stream=stream,
                           workspace=workspace.data_ptr(), workspace_bytes=workspace.numel())()
            caches.end_of_call()
            if not torch.cuda.is_current_stream_capturing():
                return out
        return out

    return run


def cudnn(caches):
    heads_q, heads_kv, *_ = caches.shape

    def run():
        for k, v in zip(map(caches.dense, caches.k), map(caches.dense, caches.v)):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = scaled_dot_product_attention(*(x.transpose(1, 2) for x in (caches.q, k, v)), enable_gqa=heads_q != heads_kv)
            caches.end_of_call()
            if not torch.cuda.is_current_stream_capturing():
                return out.transpose(1, 2)

    return run


def fa3(caches, page, part=""):
    forward = torch.ops.flash_attn_3.fwd
    _, heads_kv, _, _, dim = caches.shape
    more = dict(page_table=caches.table_of(page, part)) if page else {}

    def run():
        for k, v in zip(caches.k, caches.v):
            k, v = (x.view(-1, page, heads_kv, dim) if page else caches.dense(x) for x in (k, v))
            out = forward(caches.q, k, v, seqused_k=caches.used[part], is_causal=True, softcap=caches.softcap,
                          num_splits=0, **more)
            caches.end_of_call()
            if not torch.cuda.is_current_stream_capturing():
                return out[0]

    return run


def fa3_bytes(caches, page):
    _, heads_kv, batch, _, dim = caches.shape
    q, tensors = caches.q.to(torch.float8_e4m3fn), list(zip(*caches.quantised_by_head()))
    ones = torch.ones(batch, heads_kv, device="cuda")
    more = dict(page_table=caches.table_of(page)) if page else {}

    def run():
        for (k, k_descale), (v, v_descale) in tensors:
            k, v = (x.view(-1, page, heads_kv, dim) if page else caches.dense(x) for x in (k, v))
            out = torch.ops.flash_attn_3.fwd(q, k, v, seqused_k=caches.used[""], is_causal=True, num_splits=0, q_descale=ones,
                                             k_descale=k_descale, v_descale=v_descale, **more)
            caches.end_of_call()
            if not torch.cuda.is_current_stream_capturing():
                return out[0]

    return run


def share_of_bound(out, caches, reads, rounds_q):
    """The largest error of a few heads, as a share of twice that of attention in bf16, plus a unit of bf16."""
    heads_q, heads_kv, batch, _, dim = caches.shape
    group, share = heads_q // heads_kv, 0.0
    for i in range(min(CHECKED, batch * heads_kv)):
        sequence, head = i * batch // CHECKED % batch, i % heads_kv
        k, v = caches.keys_of(sequence, head, reads)
        q = caches.q[sequence, 0, head * group:(head + 1) * group].float()
        scores = capped(caches, q @ k.T / dim**0.5)
        expected = torch.softmax(scores, -1) @ v
        plain = (torch.softmax(scores.bfloat16().float(), -1).bfloat16().float() @ v).bfloat16().float()
        bound = 2 * (plain - expected).abs().max() + expected.abs().max() * 2**-8
        if rounds_q:
            bound = expected.abs().max() / 10
        error = (out[sequence, 0, head * group:(head + 1) * group].float() - expected).abs().max()
        share = max(share, float(error / bound) if torch.isfinite(error) else float("inf"))
    return share


def graph_of(run):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def title_of(name, asked, reads, split=0, planned=0):
    """A variant's name in the report."""
    parts = [name, "e4m3" if reads.e4m3 else "", f"pages {reads.page}" if reads.page else "dense",
             reads.part, str(asked.window) if reads.part in WINDOW else "", str(asked.prefix) if reads.part in SHARED else "",
             f"split {split}" if split else "", f"planned {planned}" if planned else ""]
    return " ".join(filter(None, parts))


def variants_of(libraries, asked, caches):
    """Name → (a function that calls, what it reads)."""
    made = {} if asked.softcap else {"cudnn": (cudnn(caches), Reads())}
    e4m3s = (False, True) if asked.e4m3 else (False,)
    for (name, library), page in itertools.product(libraries.items(), (0, *asked.pages)):
        plans = (0, *asked.planned) if page else (0,)
        for part, split, planned, e4m3 in itertools.product(parts_of(asked, page), asked.split_keys, plans, e4m3s):
            reads = Reads(page, e4m3, part)
            made[title_of(name, asked, reads, split, planned)] = (functools.partial(fa4, library, caches, reads, split, planned), reads)
    if asked.fa3:
        for page in (0, *asked.pages):
            for part in ("", *(("shared",) if asked.prefix and page else ()), *(MIXED if asked.mixed and page else ())):
                reads = Reads(page, part=part)
                made[title_of("fa3", asked, reads)] = (functools.partial(fa3, caches, page, part), reads)
        for page in (0, *asked.pages) if asked.e4m3 else ():
            reads = Reads(page, True)
            made[title_of("fa3", asked, reads)] = (functools.partial(fa3_bytes, caches, page), reads)
    return made


def measure(heads, size, libraries, asked):
    caches = Caches(heads, size, asked)
    runs, replays, shares, refused, moved = [], {}, {}, {}, {}  # a graph does not keep what a run keeps
    for name, (make, reads) in variants_of(libraries, asked, caches).items():
        try:
            run = make() if isinstance(make, functools.partial) else make
            runs.append(run)
            shares[name] = share_of_bound(run(), caches, reads, name.startswith("fa3 e4m3"))
            moved[name] = caches.bytes_of(reads)
            torch.cuda.synchronize()
            replays[name] = graph_of(run)
        except Exception as problem:
            refused[name] = reason_of(problem)
    times = interleave(replays, asked.rounds, asked.pause)
    us = {name: 1000 * statistics.median(t) / caches.count for name, t in times.items()}
    bar = us.get("cudnn")
    return dict(heads=f"{heads[0]}:{heads[1]}", batch=size[0], keys=size[1], warm=asked.warm, caches=caches.count, us=us,
                gb_per_s={name: moved[name] / t / 1000 for name, t in us.items()},
                ratios={name: t / bar for name, t in us.items()} if bar else {}, shares=shares, refused=refused)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", action="append", required=True)
    parser.add_argument("--heads", type=lambda text: pairs_of(text, ":"), default=[(64, 8)])
    parser.add_argument("--sizes", type=lambda text: pairs_of(text, "x"),
                        default=pairs_of("1x1024,1x8192,1x65536,8x1024,8x8192,64x1024,64x8192,64x65536", "x"))
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--pages", type=numbers, default=[16, 128])
    parser.add_argument("--split-keys", type=numbers, default=[0])
    parser.add_argument("--planned", type=numbers, default=[])
    parser.add_argument("--prefix", type=int, default=0)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--softcap", type=float, default=0.0)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--e4m3", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--pool", type=float, default=0.0)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--fa3", default="")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    asked = parser.parse_args()
    least = min(keys for _, keys in asked.sizes)
    if asked.prefix and (not asked.pages or not 0 < asked.prefix < least or any(asked.prefix % page for page in asked.pages)):
        parser.error(f"--prefix {asked.prefix}: accepted: whole pages of each of --pages, fewer keys than the least of --sizes, {least}")
    if not 0 <= asked.window <= least:
        parser.error(f"--window {asked.window}: accepted: 1 to the least keys of --sizes, {least}; 0: none")
    return asked


def markdown(rows):
    names = list(rows[0]["us"])
    cells = [[r["heads"], str(r["batch"]), str(r["keys"]),
              *(f"{r['us'][n]:.1f} ({r['gb_per_s'][n]:.0f}) {r['ratios'].get(n, 0):.3f}" if n in r["us"] else "" for n in names)]
             for r in rows]
    return table(["heads", "batch", "keys", *names], cells)


def main():
    asked = parsed()
    if asked.fa3:
        torch.ops.load_library(asked.fa3)
    libraries = {name: fa4_ctypes.Library(path, "cuda:0") for name, path in parse_libraries(asked.lib).items()}
    print(torch.cuda.get_device_name(0), torch.__version__)
    rows, wrong = [], False
    for heads in asked.heads:
        for size in asked.sizes:
            rows.append(measure(heads, size, libraries, asked))
            row = rows[-1]
            print(f"{row['heads']} batch {row['batch']} keys {row['keys']}{' warm' if asked.warm else ''}")
            for name in row["us"]:
                print(f"  {name:32} {row['us'][name]:9.2f} us {row['gb_per_s'][name]:6.0f} GB/s  x cudnn {row['ratios'].get(name, 0):.3f}"
                      f"  error {row['shares'][name]:.2f} of its bound")
            for name, reason in row["refused"].items():
                print(f"  {name:32} refused: {reason}")
            sys.stdout.flush()
            wrong |= any(not share <= 1 for share in row["shares"].values())
            if asked.json:
                with open(asked.json, "w") as file:
                    json.dump(rows, file, indent=1)
            if asked.markdown:
                with open(asked.markdown, "w") as file:
                    file.write(markdown(rows) + "\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
