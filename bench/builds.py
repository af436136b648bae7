#!/usr/bin/env python3
"""Builds of libfa4 side by side on a GPU, interleaved in one run: what a change costs or buys.

    python3 bench/builds.py --lib before=OLD/libfa4.so --lib after=NEW/libfa4.so
                            [--rows table|other|decode|all] [--rounds 9] [--pause 0.05] [--json F]

The first build is what the others are compared with: the ratio is its time through theirs, above 1
where they are faster. Needs Python and the CUDA driver, nothing else. Rounds are interleaved and
their order rotates; a figure is the median over the rounds. "bits" says whether out and lse are
those of the first build. The rows of decoding end with the time of a group of 7 query heads through
that of 8, for each build.
"""
import argparse
import ctypes
import json
import math
import os
import random
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
import problems

SLICE_MS = 25  # of one build in one round
PATTERN = 1 << 20  # random elements that tensors repeat


class Driver:
    """The CUDA driver, as far as a benchmark needs it."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.events = [ctypes.c_void_p() for _ in range(2)]
        for event in self.events:
            self.call("cuEventCreate", ctypes.byref(event), 0)

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status != 0:
            raise RuntimeError(f"{name}: error {status}")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 256)))
        return pointer.value

    def free(self, pointer):
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def write(self, pointer, data):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)))

    def read(self, pointer, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        return data.raw

    def copy(self, to, source, size):
        self.call("cuMemcpyDtoD_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size))

    def milliseconds(self, call, repeats):
        start, stop = self.events
        self.call("cuCtxSynchronize")
        self.call("cuEventRecord", start, None)
        for _ in range(repeats):
            call()
        self.call("cuEventRecord", stop, None)
        self.call("cuEventSynchronize", stop)
        elapsed = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(elapsed), start, stop)
        return elapsed.value / repeats


class Inputs:
    """Normal random bf16 numbers on the device, which tensors repeat from different places on."""

    def __init__(self, driver):
        generator = random.Random(1)
        bits = (struct.unpack("<I", struct.pack("<f", generator.gauss(0, 1)))[0] >> 16 for _ in range(PATTERN))
        self.driver, self.pattern = driver, driver.allocate(2 * PATTERN)
        driver.write(self.pattern, struct.pack(f"<{PATTERN}H", *bits))

    def tensor(self, elements, seed):
        pointer, size = self.driver.allocate(2 * elements), 2 * elements
        offset = 2 * (seed * 77777 % PATTERN)
        done = min(size, 2 * PATTERN - offset)
        self.driver.copy(pointer, self.pattern + offset, done)
        while done < size:
            part = min(size - done, 2 * PATTERN - 2)  # an odd length: rows do not repeat
            self.driver.copy(pointer + done, self.pattern + 2, part)
            done += part
        return pointer


def row(batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v, causal):
    return dict(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, heads_q=heads_q, heads_kv=heads_kv,
                head_dim=head_dim, head_dim_v=head_dim_v, causal=causal)


def both_masks(shapes):
    for s in shapes:
        for causal in (0, 1):
            yield row(s.batch, s.seqlen, s.seqlen, s.heads_q, s.heads_kv, s.head_dim, s.head_dim_v, causal)


def decode_rows():
    for group in (1, 3, 5, 6, 7, 8, 12, 16):
        yield row(1, 1, 8192, 8 * group, 8, 128, 128, 0)
    for group in (7, 8):
        yield row(16, 1, 8192, 8 * group, 8, 128, 128, 0)
    for group in (96, 128):
        yield row(16, 1, 8192, group, 1, 128, 128, 0)


ROWS = {"table": lambda: both_masks(problems.table()), "other": lambda: both_masks(problems.other()), "decode": decode_rows}


def name_of(r):
    keys = "" if r["seqlen_q"] == r["seqlen_k"] else f" x {r['seqlen_k']}"
    mask = "causal" if r["causal"] else "full"
    return f"d {r['head_dim']},{r['head_dim_v']} {mask} {r['batch']} x {r['seqlen_q']}{keys} heads {r['heads_q']}:{r['heads_kv']}"


def measure(driver, inputs, libraries, r, options):
    """Median milliseconds of each build, and whether its bits are the first one's."""
    rows_q, rows_k = r["batch"] * r["seqlen_q"], r["batch"] * r["seqlen_k"]
    out_bytes, lse_bytes = 2 * rows_q * r["heads_q"] * r["head_dim_v"], 4 * rows_q * r["heads_q"]
    buffers = dict(q=inputs.tensor(rows_q * r["heads_q"] * r["head_dim"], 1),
                   k=inputs.tensor(rows_k * r["heads_kv"] * r["head_dim"], 2),
                   v=inputs.tensor(rows_k * r["heads_kv"] * r["head_dim_v"], 3),
                   out=driver.allocate(out_bytes), lse=driver.allocate(lse_bytes), workspace=driver.allocate(1 << 20))
    calls, results = {}, {}
    for name, library in libraries.items():
        op = library.prepare(dtype=fa4_ctypes.BF16, **r)
        calls[name] = op.bind(**buffers, workspace_bytes=op.workspace_bytes)
        calls[name].op = op
        calls[name]()
        driver.call("cuCtxSynchronize")
        results[name] = (driver.read(buffers["out"], out_bytes), driver.read(buffers["lse"], lse_bytes))
    repeats = {name: max(2, int(SLICE_MS / driver.milliseconds(call, 5))) for name, call in calls.items()}
    times = {name: [] for name in calls}
    names = list(calls)
    for i in range(options.rounds):
        for name in names[i % len(names):] + names[:i % len(names)]:
            time.sleep(options.pause)
            times[name].append(driver.milliseconds(calls[name], repeats[name]))
    for pointer in buffers.values():
        driver.free(pointer)
    first = results[names[0]]
    return {name: statistics.median(t) for name, t in times.items()}, {name: results[name] == first for name in names}


def print_group_times(measured, names):
    """A group of 7 query heads beside one of 8."""
    for r, times, _ in measured:
        if r["seqlen_q"] != 1 or r["heads_q"] != 7 * r["heads_kv"]:
            continue
        eight = [t for other, t, _ in measured if other == {**r, "heads_q": 8 * r["heads_kv"]}]
        for name in names if eight else ():
            print(f"group 7 / group 8, batch {r['batch']}, {name}: {times[name] / eight[0][name]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", action="append", required=True, metavar="NAME=PATH", help="a build; the first is compared with")
    parser.add_argument("--rows", choices=(*ROWS, "all"), default="all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each slice")
    parser.add_argument("--json", help="write every figure here")
    options = parser.parse_args()
    driver = Driver()
    libraries = {}
    for item in options.lib:
        name, separator, path = item.partition("=")
        if not separator:
            parser.error(f"--lib {item}: accepted: NAME=PATH")
        libraries[name] = fa4_ctypes.Library(path, "cuda:0")
    inputs, names, measured = Inputs(driver), list(libraries), []
    ratios = {name: [] for name in names[1:]}
    for kind in ROWS if options.rows == "all" else (options.rows,):
        for r in ROWS[kind]():
            times, same = measure(driver, inputs, libraries, r, options)
            measured.append((r, times, same))
            line = f"{name_of(r):48}" + "".join(f"  {name} {times[name]:.4f} ms" for name in names)
            for name in names[1:]:
                ratios[name].append(times[names[0]] / times[name])
                line += f"  {ratios[name][-1]:.3f}{'' if same[name] else '  other bits'}"
            print(line, flush=True)
    for name, values in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, values)))
        print(f"{name} / {names[0]}: geometric mean {mean:.4f}, least {min(values):.3f}, of {len(values)} rows")
    print_group_times(measured, names)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{**r, "ms": t, "same_bits": s} for r, t, s in measured], file, indent=1)


if __name__ == "__main__":
    main()
