"""Prefill over pages against the same call of packed sequences, on a CUDA device, through fa4cpp.

pages.py [--rounds N] [--seqlens A,B] [--pages A,B] [--head-dim D] [--heads-q N] [--heads-kv N] [--tokens N] [--in-order] [--json F]

Packed queries over keys that lie in pages, whose table is shuffled and whose unused rows are NaN. Each page size runs in
pairs with the packed call, first one, then the other; the ratio is the median of the pairs' (above 1: pages are faster).
Exit 1 where a result differs from the packed call's in a bit.
"""
import argparse
import json
import statistics
import sys

try:
    import torch

    import fa4cpp
except ImportError as missing:
    print(f"pages.py: {missing}; pip install torch, and . in a clone of fa4, for this Python", file=sys.stderr)
    sys.exit(2)


def numbers(text):
    return [int(part) for part in text.split(",")]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seqlens", type=numbers, default=[2048, 8192, 32768])
    parser.add_argument("--pages", type=numbers, default=[16, 32, 64, 128, 256, 8, 24, 48, 272, 1, 4])
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--heads-q", type=int, default=64)
    parser.add_argument("--heads-kv", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--in-order", action="store_true", help="pages one behind the other, in place of shuffled")
    parser.add_argument("--json")
    return parser.parse_args()


def random_tensor(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def in_pages(rows, table, page):
    """(batch, seqlen, heads, dim) in pages (batch * pages of a sequence, page, heads, dim), by a table of all of them."""
    batch, seqlen, heads, dim = rows.shape
    padded = torch.full((batch, table.shape[1] * page, heads, dim), float("nan"), device="cuda", dtype=rows.dtype)
    padded[:, :seqlen] = rows
    pages = torch.empty(table.numel(), page, heads, dim, device="cuda", dtype=rows.dtype)
    pages[table.reshape(-1).long()] = padded.reshape(-1, page, heads, dim)
    return pages


class Case:
    def __init__(self, asked, seqlen):
        self.seqlen, self.batch = seqlen, max(1, asked.tokens // seqlen)
        self.in_order = asked.in_order
        rows = self.batch * seqlen
        self.q = random_tensor(rows, asked.heads_q, asked.head_dim)
        self.k, self.v = (random_tensor(self.batch, seqlen, asked.heads_kv, asked.head_dim) for _ in range(2))
        self.starts = torch.arange(0, rows + 1, seqlen, dtype=torch.int32, device="cuda")
        self.used = torch.full((self.batch,), seqlen, dtype=torch.int32, device="cuda")
        self.problem = dict(dtype="bfloat16", layout_q="packed", batch=self.batch, seqlen_q=seqlen, seqlen_k=seqlen, total_q=rows,
                            heads_q=asked.heads_q, heads_kv=asked.heads_kv, head_dim=asked.head_dim, causal=1)

    def call(self, keys, values, problem, **arguments):
        """The call, its output and its kernel."""
        operation = fa4cpp.Operation(device="cuda:0", **self.problem, **problem)
        workspace = torch.empty(operation.workspace_bytes + 256, dtype=torch.uint8, device="cuda")
        out = torch.empty(*self.q.shape[:2], values.shape[-1], device="cuda", dtype=self.q.dtype)
        pointers = {name: tensor.data_ptr() for name, tensor in arguments.items()}
        bound = operation.bind(q=self.q.data_ptr(), k=keys.data_ptr(), v=values.data_ptr(), out=out.data_ptr(),
                               cu_seqlens_q=self.starts.data_ptr(), workspace=(workspace.data_ptr() + 255) // 256 * 256,
                               workspace_bytes=operation.workspace_bytes, **pointers)

        def run(keep=(keys, values, workspace, arguments)):
            bound()

        return run, out, operation.kernel_name

    def packed(self):
        return self.call(self.k, self.v, dict(layout_kv="packed", total_k=self.batch * self.seqlen), cu_seqlens_k=self.starts)

    def paged(self, page):
        pages = -(-self.seqlen // page)
        order = torch.arange if self.in_order else torch.randperm
        table = order(self.batch * pages, device="cuda").to(torch.int32).reshape(self.batch, pages)
        problem = dict(layout_kv="paged", page_size=page, num_pages=table.numel(), pages_per_seq=pages, has_seqused_k=1)
        return self.call(in_pages(self.k, table, page), in_pages(self.v, table, page), problem, seqused_k=self.used, page_table=table)


def milliseconds(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def main():
    asked = parsed()
    print(torch.cuda.get_device_name(0))
    rows, differs = [], False
    for seqlen in asked.seqlens:
        case = Case(asked, seqlen)
        packed, expected, _ = case.packed()
        for page in asked.pages:
            paged, out, kernel = case.paged(page)
            for run in (packed, paged):
                run()
            torch.cuda.synchronize()
            same = torch.equal(out.view(torch.int16), expected.view(torch.int16))
            differs |= not same
            pairs = []
            for index in range(asked.rounds + 2):
                order = (packed, paged) if index % 2 == 0 else (paged, packed)
                times = {run: milliseconds(run) for run in order}
                if index >= 2:  # the first ones warm up
                    pairs.append((times[packed], times[paged]))
            rows.append({"seqlen": seqlen, "page": page, "kernel": kernel, "same_bits": same,
                         "packed_ms": statistics.median(a for a, _ in pairs), "paged_ms": statistics.median(b for _, b in pairs),
                         "ratio": statistics.median(a / b for a, b in pairs)})
            print("seqlen {seqlen:6} pages of {page:4}  packed {packed_ms:8.3f} ms  pages {paged_ms:8.3f} ms  ratio {ratio:.3f}  same bits: "
                  "{same_bits}  {kernel}".format(**rows[-1]), flush=True)
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file, indent=1)
    return differs


if __name__ == "__main__":
    sys.exit(main())
