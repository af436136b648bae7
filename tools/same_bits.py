#!/usr/bin/env python3
"""Runs `fa4 run` on the same files on two devices and compares out and lse byte by byte.

    tools/same_bits.py --fa4 build/release/bin/fa4 [--devices cuda:0,emulated:h200] [--jobs N] [--seed 0]

An emulated GPU is worth as much as it gives what the GPU gives: 150 runs over head dimensions, both
16-bit types, masks, groups of heads, softcap and lengths that fill no tile. Exit status 1 when bytes
differ.
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

HEAD_DIMS = ((64, 64), (128, 128), (96, 96), (192, 128), (256, 256))
TYPES = ("bf16", "f16")
MASKS = ((), ("--causal",), ("--window", "70", "5"))
# seqlen_q, seqlen_k, heads_q, heads_kv, more arguments
SHAPES = ((65, 130, 1, 1, ()), (1, 333, 7, 1, ()), (200, 77, 3, 1, ("--scale", "0.3")), (129, 129, 2, 1, ("--softcap", "15")), (256, 384, 1, 1, ()))


def npy(path, shape, dtype, generator):
    """Random numbers of magnitude up to about 4, as the type's 16-bit patterns."""
    count = 1
    for extent in shape:
        count *= extent
    values = [generator.gauss(0.0, 1.0) for _ in range(min(count, 1 << 14))]
    if dtype == "f16":
        words = [struct.unpack("<H", struct.pack("<e", v))[0] for v in values]
    else:
        words = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
    data = struct.pack(f"<{len(words)}H", *words)
    header = str({"descr": "<f2" if dtype == "f16" else "<u2", "fortran_order": False, "shape": shape})
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write((data * (count // len(words) + 1))[:2 * count])


def run_case(case, fa4, devices, seed):
    (head_dim, head_dim_v), dtype, mask, (seqlen_q, seqlen_k, heads_q, heads_kv, more) = case
    generator = random.Random(f"{seed} {case}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        npy(folder / "q.npy", (2, seqlen_q, heads_q, head_dim), dtype, generator)
        npy(folder / "k.npy", (2, seqlen_k, heads_kv, head_dim), dtype, generator)
        npy(folder / "v.npy", (2, seqlen_k, heads_kv, head_dim_v), dtype, generator)
        results = []
        for device in devices:
            out, lse = folder / f"out.{len(results)}.npy", folder / f"lse.{len(results)}.npy"
            command = [fa4, "run", "--device", device, "--dtype", dtype, *mask, *more, "--out", out, "--lse", lse]
            command += [word for tensor in "qkv" for word in (f"--{tensor}", folder / f"{tensor}.npy")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return case, done.stderr.strip() or f"exit {done.returncode}"
            results.append((out.read_bytes(), lse.read_bytes()))
    different = [name for i, name in enumerate(("out", "lse")) if results[0][i] != results[1][i]]
    return case, f"{' and '.join(different)} differ" if different else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fa4", required=True, help="the command")
    parser.add_argument("--devices", default="cuda:0,emulated:h200", help="two names of fa4 devices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    devices = options.devices.split(",")
    cases = list(itertools.product(HEAD_DIMS, TYPES, MASKS, SHAPES))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda case: run_case(case, options.fa4, devices, options.seed), cases))
    wrong = [(case, why) for case, why in results if why]
    for case, why in wrong:
        print(f"{case}: {why}")
    print(f"{len(cases) - len(wrong)} of {len(cases)} runs have the same bits on {devices[0]} and {devices[1]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
