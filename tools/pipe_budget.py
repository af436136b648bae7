#!/usr/bin/env python3
"""What a Blackwell attention kernel will do per pair of 128x128 tiles, a backward one per tile, from its machine code.

pipe_budget.py F.cubin|F.ptx|F.sass [--ptx F.ptx] [--launch L.json | --counts C.json | --own QxK] [--causal] [--json]
pipe_budget.py --self-check DIR [--json]     the counts and shares that are known of other authors' kernels
pipe_budget.py --measured M.json             what fa4_measure_rates found on a GPU beside what is assumed

Prints, for each role's loop, the instructions of one time round; for the busiest scheduler's four warps those of a
pair of tiles; clocks of every unit; W (S full to the first hand-over of P), the period and its share of the tensor
core's; the highest register of each role's code beside its setmaxnreg; stack and spills.
Trip counts come from a launch on the emulator (ptxemu run --counts), mapped by the line of PTX that each SASS
instruction is from. Without one a loop counts by the way that does most of its role's work. PTX that NVRTC made with line
information (fa4_compile_kernel --lines) names the roles; those of other kernels are guessed. docs/kernels/pipe_budget.md says what is
assumed and what this cannot see. Needs nvdisasm, for PTX ptxas, for --launch ptxemu, for --own fa4 too. Exit 1: the self-check failed.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile

from pipe_budget import budget, inputs, measured, own_launch, report, roles, sass, selfcheck


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="F.cubin, F.ptx or F.sass (nvdisasm -c -gp)")
    parser.add_argument("--ptx", help="of the cubin, when it was made without line information")
    parser.add_argument("--kernel", help="part of the kernel's name; default: the largest function")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--launch", help="run it on ptxemu as this file says (docs/cli.md) and count")
    source.add_argument("--counts", help="what ptxemu run --counts wrote")
    source.add_argument("--own", metavar="QxK", help="run this project's kernel on ptxemu, over so many queries and keys")
    parser.add_argument("--head-dim", help="D or D,DV; default: from the number of products")
    parser.add_argument("--causal", action="store_true", help="quote the share for a causal sequence")
    parser.add_argument("--tile-a-cta", action="store_true", help="each CTA has one tile: its start counts")
    parser.add_argument("--self-check", metavar="DIR")
    parser.add_argument("--measured", metavar="M.json")
    parser.add_argument("--json", action="store_true")
    for name in ("ptxas", "nvdisasm", "ptxemu", "fa4"):
        parser.add_argument(f"--{name}", help=f"default: {name.upper()} in the environment, the PATH, a PyPI package")
    return parser.parse_args()


def head_dims(text):
    if text is None:
        return None
    try:
        numbers = [int(n) for n in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(n % 16 == 0 and 0 < n <= 256 for n in numbers):
        raise inputs.InputError(f"--head-dim {text}; accepted: D or D,DV, multiples of 16 up to 256")
    return numbers[0], numbers[-1]


def counts_of_own(options, ptx):
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", options.own)
    if not match:
        raise inputs.InputError(f"--own {options.own}; accepted: QxK, queries and keys, as 1024x2048")
    if ptx is None:
        raise inputs.InputError("--own: needs the PTX; accepted: F.ptx, or --ptx F.ptx beside a cubin")
    text = pathlib.Path(ptx).read_text(errors="replace")
    launch = own_launch.launch_of(text, int(match[1]), int(match[2]), options.causal, own_launch.layout(options.fa4))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "launch.json"
        file.write_text(json.dumps(launch))
        return inputs.counts_of_launch(file, ptx, options.ptxemu)


def analyse(options):
    text = inputs.listing(options.file, options.ptx, options.ptxas, options.nvdisasm)
    function = inputs.choose(sass.parse(text), options.kernel)
    warps = None
    ptx = options.ptx or (options.file if options.file.endswith(".ptx") else None)
    if options.launch:
        warps = inputs.counts_of_launch(options.launch, ptx, options.ptxemu)
    elif options.own:
        warps = counts_of_own(options, ptx)
    elif options.counts:
        warps = inputs.read_counts(options.counts)
    if warps is not None and not any(i.line for i in function.code):
        raise inputs.InputError(f"{options.file}: names no lines of PTX, so counts cannot be mapped; accepted: --ptx F.ptx beside it")
    named = roles.roles_of(pathlib.Path(ptx).read_text(errors="replace")) if ptx else {}
    kernel = budget.Kernel(function, budget.arch_of(text), warps, named)
    return budget.analyse(kernel, head_dims(options.head_dim), options.causal, options.tile_a_cta)


def self_check(options):
    rows = selfcheck.check_folder(options.self_check, options.ptxas, options.nvdisasm)
    if options.json:
        print(json.dumps({"schema": 1, "checks": rows}, indent=2))
    else:
        shown = [("kernel", "what", "expected", "found", "")]
        shown += [(r["kernel"], r["what"], r["expected"], r["found"], "" if r["good"] else "NOT WITHIN " + f"{r['tolerance']:.0%}") for r in rows]
        print(report.table(shown))
    return 0 if all(r["good"] for r in rows) else 1


def main():
    options = parse_arguments()
    try:
        if options.self_check:
            return self_check(options)
        if options.measured:
            print(report.table([("instruction", "clocks assumed", "measured", "latency assumed", "measured")] + measured.rows(options.measured)))
            return 0
        if not options.file:
            raise inputs.InputError("no file; accepted: F.cubin, F.ptx, F.sass, --self-check DIR or --measured M.json")
        result = analyse(options)
    except inputs.InputError as error:
        print(f"pipe_budget: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"schema": 1, **result}, indent=2) if options.json else report.text(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
