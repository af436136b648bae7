#!/usr/bin/env python3
"""Runs `fa4 run` on the same files on two devices and compares what it writes byte by byte.

    tools/same_bits.py --fa4 build/release/bin/fa4 [--direction forward|backward|both]
                       [--devices cuda:0,emulated:h200] [--jobs N] [--seed 0]

An emulated GPU is worth as much as it gives what the GPU gives. Forward: 150 runs over head
dimensions, both 16-bit types, masks, groups of heads, softcap and lengths that fill no tile; out and
lse. Backward, deterministic: 108 runs over the same, packed sequences and sinks, several blocks of
keys each; out, lse, dq, dk, dv and dsink. A run keeps one core busy; N go at a time, by default as many
as there are cores. NVRTC compiles what is neither prebuilt nor cached. Exit status 1 when bytes differ
or a run fails.
"""
import argparse
import concurrent.futures
import dataclasses
import itertools
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

TYPES = ("bf16", "f16")
MASKS = ((), ("--causal",), ("--window", "70", "5"))
FORWARD_HEAD_DIMS = ((64, 64), (128, 128), (96, 96), (192, 128), (256, 256))
BACKWARD_HEAD_DIMS = (*FORWARD_HEAD_DIMS, (192, 192))


@dataclasses.dataclass(frozen=True)
class Shape:
    """A length is that of both sequences of a dense batch; packed, there is one for each sequence."""
    seqlen_q: int | tuple
    seqlen_k: int | tuple
    heads_q: int
    heads_kv: int
    more: tuple = ()  # arguments of the command
    sink: bool = False


FORWARD_SHAPES = (
    Shape(65, 130, 1, 1),
    Shape(1, 333, 7, 1),
    Shape(200, 77, 3, 1, ("--scale", "0.3")),
    Shape(129, 129, 2, 1, ("--softcap", "15")),
    Shape(256, 384, 1, 1),
)
BACKWARD_SHAPES = (
    Shape(100, 290, 1, 1),
    Shape(130, 140, 3, 1, ("--softcap", "15")),
    Shape((70, 0, 1, 129), (33, 40, 0, 200), 2, 1, ("--scale", "0.3"), sink=True),
)


@dataclasses.dataclass(frozen=True)
class Case:
    direction: str
    head_dims: tuple
    dtype: str
    mask: tuple
    shape: Shape


def cases_of(direction):
    head_dims, shapes = {"forward": (FORWARD_HEAD_DIMS, FORWARD_SHAPES), "backward": (BACKWARD_HEAD_DIMS, BACKWARD_SHAPES)}[direction]
    return [Case(direction, *row) for row in itertools.product(head_dims, TYPES, MASKS, shapes)]


def npy(path, shape, dtype, data):
    """`data` holds the first elements and is repeated to fill the shape."""
    header = str({"descr": dtype, "fortran_order": False, "shape": shape})
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    size = math.prod(shape) * int(dtype[-1])
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write((data * (size // max(len(data), 1) + 1))[:size])


def npy_random(path, shape, dtype, generator):
    """Random numbers of magnitude up to about 4, as the type's 16-bit patterns or f32."""
    values = [generator.gauss(0.0, 1.0) for _ in range(min(math.prod(shape), 1 << 14))]
    if dtype == "bf16":
        words = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
        npy(path, shape, "<u2", struct.pack(f"<{len(words)}H", *words))
    else:
        npy(path, shape, "<f2" if dtype == "f16" else "<f4", struct.pack(f"<{len(values)}{'e' if dtype == 'f16' else 'f'}", *values))


def write_inputs(folder, case, seed):
    """Every input's file by the option that names it."""
    generator = random.Random(f"{seed} {case}")
    files = {}

    def add(name, shape, dtype):
        files[f"--{name}"] = folder / f"{name}.npy"
        npy_random(files[f"--{name}"], shape, dtype, generator)

    shape = case.shape
    leading = []
    for side, lengths in (("q", shape.seqlen_q), ("k", shape.seqlen_k)):
        packed = isinstance(lengths, tuple)
        leading.append((sum(lengths),) if packed else (2, lengths))
        if packed:
            starts = (0, *itertools.accumulate(lengths))
            files[f"--cu-seqlens-{side}"] = folder / f"cu_seqlens_{side}.npy"
            npy(files[f"--cu-seqlens-{side}"], (len(starts),), "<i4", struct.pack(f"<{len(starts)}i", *starts))
    of_q, of_k = leading
    head_dim, head_dim_v = case.head_dims
    add("q", (*of_q, shape.heads_q, head_dim), case.dtype)
    add("k", (*of_k, shape.heads_kv, head_dim), case.dtype)
    add("v", (*of_k, shape.heads_kv, head_dim_v), case.dtype)
    if case.direction == "backward":
        add("dout", (*of_q, shape.heads_q, head_dim_v), case.dtype)
    if shape.sink:
        add("sink", (shape.heads_q,), "f32")
    return files


def run_case(case, fa4, devices, seed):
    """Why the case has not the same bits, or nothing."""
    names = ["out", "lse"]
    arguments = ["--dtype", case.dtype, *case.mask, *case.shape.more]
    if case.direction == "backward":
        names += ["dq", "dk", "dv"] + (["dsink"] if case.shape.sink else [])
        arguments.append("--deterministic")
    environment = {**os.environ, "FA4_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = write_inputs(folder, case, seed)
        results = []
        for i, device in enumerate(devices):
            written = {f"--{output}": folder / f"{output}.{i}.npy" for output in names}
            command = [fa4, "run", "--device", device, *arguments]
            command += [word for option in (files | written).items() for word in option]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode != 0:
                return done.stderr.strip() or f"exit {done.returncode}"
            results.append([path.read_bytes() for path in written.values()])
    different = [name for name, one, other in zip(names, *results) if one != other]
    return f"{' and '.join(different)} differ" if different else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fa4", required=True, help="the command")
    parser.add_argument("--direction", default="both", choices=("forward", "backward", "both"))
    parser.add_argument("--devices", default="cuda:0,emulated:h200", help="two names of fa4 devices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    devices = options.devices.split(",")
    if len(devices) != 2:
        parser.error(f"--devices {options.devices}: accepted: two names, as cuda:0,emulated:h200")
    failed = False
    for direction in ("forward", "backward") if options.direction == "both" else (options.direction,):
        cases = cases_of(direction)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            reasons = list(pool.map(lambda case: run_case(case, options.fa4, devices, options.seed), cases))
        wrong = [(case, why) for case, why in zip(cases, reasons) if why]
        for case, why in wrong:
            print(f"{case}: {why}")
        print(f"{direction}: {len(cases) - len(wrong)} of {len(cases)} runs have the same bits on {devices[0]} and {devices[1]}", flush=True)
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
