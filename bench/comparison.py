"""What peers.py and peers_backward.py are made of: rows, builds and peers side by side, ratios, reports.

A benchmark says in a Direction what is particular to it; main() does the rest.
"""
import argparse
import json
import math
import os
import statistics
import sys
from typing import Callable, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
import problems
from interleaved import DTYPES, MATMUL_FLOPS, geometric_mean, interleave, product, reason_of, speed_ratio, table

import torch

TITLES = {"cudnn": "cuDNN", "fa3": "FA3", "fa3det": "FA3 deterministic", "original": "original",
          "origdet": "original deterministic"}
DETERMINISTIC_PEERS = ("fa3det", "origdet")


class Direction(NamedTuple):
    """What is timed. A call returns the tensors that it computes."""

    name: str
    rows: dict  # name → a function that yields problems.Row
    flops: float  # times those of the forward
    tensors: tuple  # names of what a call returns
    inputs: Callable  # (row, torch's type of their elements) → what the calls read
    truth: Callable  # (row, inputs) → what shares takes
    shares: Callable  # (row, tensors, truth) → {tensor: its error as a share of what is allowed}
    ours: Callable  # (library, row, inputs, deterministic) → a call
    load_peers: Callable  # (options) → {name: (row, inputs) → a call}
    has_deterministic: bool = False


def parse_libraries(items):
    """{name: path} of --lib PATH and --lib NAME=PATH."""
    libraries = {}
    for item in items:
        name, separator, path = item.partition("=")
        name, path = (name, path) if separator else ("fa4", item)
        if not name or not path or name in libraries or name in TITLES:
            raise ValueError(f"--lib {item}: accepted: PATH or NAME=PATH, each name once and no peer's")
        libraries[name] = path
    return libraries


def parse_dims(text):
    """The numbers of --fa3-head-dims; none: all."""
    dims = text.split(",") if text else []
    for dim in dims:
        if not dim.isdigit() or int(dim) == 0:
            raise ValueError(f"--fa3-head-dims {text}: {dim!r}; accepted: positive numbers, with commas between them")
    return [int(dim) for dim in dims]


def parse_rows(kinds, extra, choices):
    """The rows of --rows, or those of --extra."""
    if extra:
        return [problems.parse_row(text) for item in extra for text in item.split()]
    names = list(choices) if kinds == "all" else kinds.split(",")
    for name in names:
        if name not in choices:
            raise ValueError(f"--rows {kinds}: {name}; accepted: all, or some of {','.join(choices)}")
    return [row for name in names for row in choices[name]()]


def deterministic_name(name):
    return f"{name} deterministic"


def variants_of(direction, libraries, peers, deterministic):
    """Everything that runs: name → a function of a row and its inputs that makes the call."""
    def ours(library, deterministic):
        return lambda row, x: direction.ours(library, row, x, deterministic)

    made = {name: ours(library, False) for name, library in libraries.items()}
    if deterministic:
        made |= {deterministic_name(name): ours(library, True) for name, library in libraries.items()}
    return made | peers


def is_deterministic(name):
    return name in DETERMINISTIC_PEERS or name.endswith(" deterministic")


def comparisons(names, peers, deterministic):
    """What is compared with what: title → (one of ours, the others)."""
    fast = [peer for peer in peers if not is_deterministic(peer)]
    steady = [peer for peer in peers if is_deterministic(peer)]
    pairs = {f"{name} / best": (name, fast) for name in names}
    pairs |= {f"{name} / {names[0]}": (name, [names[0]]) for name in names[1:]}
    if deterministic:
        pairs |= {f"{deterministic_name(name)} / best": (deterministic_name(name), steady) for name in names}
        pairs |= {f"{deterministic_name(name)} / {name}": (deterministic_name(name), [name]) for name in names}
    return pairs


def check(direction, name, call, row, truth):
    """Makes the first call: each tensor's error as a share of what is allowed, and what is wrong."""
    tensors = call()
    torch.cuda.synchronize()
    shares = direction.shares(row, tensors, truth)
    wrong = [f"{tensor} {share:.3g} of its bound" for tensor, share in shares.items() if not share <= 1]
    wrong += [f"{tensor}: {count} elements are NaN or not written" for tensor, result in zip(direction.tensors, tensors)
              if (count := int(torch.isnan(result).sum()))]
    if is_deterministic(name) and not wrong:
        first = [result.clone() for result in tensors]
        wrong += [f"{tensor} has other bits the second time" for tensor, one, two in zip(direction.tensors, first, call())
                  if not torch.equal(one, two)]
    return shares, wrong


def ratios_of(times, pairs, right):
    """Each pair's ratio and interval, among those whose results are right."""
    ratios = {}
    for title, (name, others) in pairs.items():
        others = [other for other in others if other in right]
        if name in right and others:
            ratios[title] = speed_ratio(times, name, others)
    return ratios


def measure(direction, row, variants, pairs, matmul, options):
    x = direction.inputs(row, DTYPES[options.dtype])
    x.q.mul_(options.spread)
    truth = direction.truth(row, x)
    calls, shares, wrong, refused = {}, {}, {}, {}
    for name, make in variants.items():
        try:
            call = make(row, x)
            shares[name], found = check(direction, name, call, row, truth)
            calls[name] = call
            if found:
                wrong[name] = "; ".join(found)
        except Exception as problem:
            refused[name] = reason_of(problem)
    del truth
    times = interleave({**calls, "matmul": matmul}, options.rounds, options.pause,
                       sustained=options.pause == 0)
    medians = {name: statistics.median(milliseconds) for name, milliseconds in times.items()}
    flops = direction.flops * row.forward_flops()
    return dict(row._asdict(), mask=row.mask(), size=row.size(), kernels={n: c.kernel for n, c in calls.items() if hasattr(c, "kernel")},
                tflops={name: flops / medians[name] / 1e9 for name in calls}, matmul=MATMUL_FLOPS / medians["matmul"] / 1e9,
                ratios=ratios_of(times, pairs, set(calls) - set(wrong)), shares=shares, wrong=wrong, refused=refused, ms=times)


def row_cells(r):
    return [f"{r['head_dim']}, {r['head_dim_v']}", r["mask"], r["size"], f"{r['heads_q']}:{r['heads_kv']}"]


def line_of(r):
    """A row for the terminal; what failed or is missing stands below it."""
    dims, mask, size, heads = row_cells(r)
    speeds = "  ".join(f"{TITLES.get(name, name)} {speed:.0f}" for name, speed in r["tflops"].items())
    ratios = "  ".join(f"{title} {ratio:.3f} [{low:.3f}, {high:.3f}]" for title, (ratio, low, high) in r["ratios"].items())
    below = [f"\n    {ratios}"] if ratios else []
    below += [f"\n    WRONG {name}: {what}" for name, what in r["wrong"].items()]
    below += [f"\n    without {name}: {why}" for name, why in r["refused"].items()]
    return f"d {dims} {mask} {size} heads {heads}: {speeds}  matmul {r['matmul']:.0f}{''.join(below)}"


def markdown(rows, variants, pairs):
    """TFLOP/s of each, then each ratio with its interval."""
    lines = []
    for r in rows:
        cells = [f"{r['tflops'][name]:.0f}{' (wrong)' if name in r['wrong'] else ''}" if name in r["tflops"] else "–" for name in variants]
        for title in pairs:
            ratio = r["ratios"].get(title)
            cells.append(f"{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]" if ratio else "–")
        lines.append([*row_cells(r), *cells, f"{r['matmul']:.0f}"])
    titles = ["d, dv", "mask", "batch x seqlen", "heads q:kv", *(TITLES.get(name, name) for name in variants), *pairs, "matmul"]
    return table(titles, lines)


def means(rows, pairs):
    """A line for each head dimension and mask: geometric means of the ratios, and the least of their low ends."""
    kinds = {}
    for r in rows:
        kinds.setdefault((r["head_dim"], r["head_dim_v"], r["mask"], bool(r["lengths"])), []).append(r)
    lines = []
    for (head_dim, head_dim_v, mask, packed), group in kinds.items():
        parts = []
        for title in pairs:
            found = [r["ratios"][title] for r in group if title in r["ratios"]]
            if found:
                mean, least = geometric_mean([ratio for ratio, _, _ in found]), min(low for _, low, _ in found)
                parts.append(f"{title} {mean:.3f} (rows {len(found)}, least low end {least:.3f})")
        lines.append(f"d {head_dim}, {head_dim_v} {mask}{' packed' if packed else ''}: {'; '.join(parts) or 'no ratio'}")
    return "\n".join(lines)


def failed(r, ours):
    """A row fails by a wrong result, and where one of ours does not run it."""
    return bool(r["wrong"]) or any(name in r["refused"] for name in ours)


def save(direction, options, rows, variants, pairs):
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"direction": direction.name, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "cudnn": torch.backends.cudnn.version(), "libraries": options.lib, "dtype": options.dtype, "spread": options.spread,
                       "rounds": options.rounds, "pause": options.pause, "rows": rows}, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(rows, variants, pairs) + "\n\n" + means(rows, pairs) + "\n")


def parser_of(direction, description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--lib", action="append", required=True, metavar="[NAME=]PATH", help="libfa4.so; more than once: builds side by side")
    parser.add_argument("--peers", help="of cudnn,fa3,original (default: those that are here)")
    parser.add_argument("--fa3", metavar="FILE", help="FlashAttention-3's operators, where it is not installed")
    parser.add_argument("--fa3-head-dims", metavar="A,B", default="",
                        help="those that it was built for: it is left out of other rows, since refusing one may end the process")
    parser.add_argument("--rows", default="all", help=f"of {','.join(direction.rows)} (default: all)")
    parser.add_argument("--extra", action="append", metavar="ROW", help=f"{problems.ROW_FORM}: these rows alone; separated by spaces")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of every variant's tensors, and of the matrix product (default: bf16)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each slice")
    parser.add_argument("--spread", type=float, default=1.0, metavar="S", help="the standard deviation of a row's logits (default: 1)")
    parser.add_argument("--softcap", type=float, default=0.0, metavar="C", help="of every row (default: none); cuDNN has none")
    parser.add_argument("--json", help="write every figure here")
    parser.add_argument("--markdown", help="write the table here")
    if direction.has_deterministic:
        parser.add_argument("--deterministic", action="store_true", help="each one's deterministic mode too")
    else:
        parser.set_defaults(deterministic=False)
    return parser


def checked(parser, arguments=None):
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.pause < 0:
        parser.error(f"--rounds {options.rounds} --pause {options.pause}: accepted: 1 or more, 0 or more")
    if not 0 <= options.spread < 1e4:
        parser.error(f"--spread {options.spread}: accepted: 0 to below 10000")
    if not 0 <= options.softcap < math.inf:
        parser.error(f"--softcap {options.softcap}: accepted: 0 (off) or more")
    return options


def main(direction, options):
    """Measures and reports; the exit status."""
    try:
        paths = parse_libraries(options.lib)
        problem_rows = [row._replace(softcap=options.softcap) for row in parse_rows(options.rows, options.extra, direction.rows)]
        peers = direction.load_peers(options.peers, options.fa3, parse_dims(options.fa3_head_dims), options.deterministic)
        libraries = {name: fa4_ctypes.Library(path, "cuda:0") for name, path in paths.items()}
    except (ValueError, OSError, RuntimeError) as problem:
        print(f"{os.path.basename(sys.argv[0])}: {problem}", file=sys.stderr)
        return 2
    variants = variants_of(direction, libraries, peers, options.deterministic)
    ours = [name for name in variants if name not in peers]
    pairs = comparisons(list(libraries), list(peers), options.deterministic)
    torch.manual_seed(1)
    matmul, rows = product(DTYPES[options.dtype]), []
    for row in problem_rows:
        rows.append(measure(direction, row, variants, pairs, matmul, options))
        print(line_of(rows[-1]), flush=True)
        save(direction, options, rows, variants, pairs)
    print(means(rows, pairs))
    wrong = sum(failed(r, ours) for r in rows)
    print(f"{len(rows)} rows, {wrong} failed")
    return 1 if wrong else 0
