#!/usr/bin/env python3
"""What one Hopper GPU gives a backward kernel: clocks of wgmma beside other traffic of shared
memory, loads whose lanes share addresses, tiles sent within a cluster of two, and the clock under load.

    python3 bench/hopper_rates.py [--part products,loads,exchange,clock] [--json F]

Needs cuda-bindings (driver and NVRTC from Python) and, for `clock`, torch and nvidia-smi. The
kernels are in hopper_rates.cu; every exchange is checked word by word.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

try:
    from cuda.bindings import driver, nvrtc
except ImportError as missing:
    print(f"hopper_rates: {missing}; pip install cuda-bindings", file=sys.stderr)
    sys.exit(2)

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "..", "src")
SMEM_LIMIT = 232448


def check(result):
    """The value of a call of cuda-bindings, which returns (status, values...)."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[2:] and result[1:]


def compile_cubin(defines):
    with open(os.path.join(HERE, "hopper_rates.cu"), encoding="utf-8") as file:
        source = file.read()
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"hopper_rates.cu", 0, [], []))
    options = [b"--gpu-architecture=sm_90a", b"--std=c++20", f"-I{SOURCES}".encode(), b"-default-device"]
    options += [f"-D{name}={value}".encode() for name, value in defines.items()]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    if int(status) != 0:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log) + (None,))
        raise RuntimeError(log.decode())
    cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, cubin) + (None,))
    return cubin


class Kernel:
    def __init__(self, name, smem_bytes, defines):
        module = check(driver.cuModuleLoadData(compile_cubin(defines)))
        self.function = check(driver.cuModuleGetFunction(module, name.encode()))
        self.smem_bytes = smem_bytes
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(self.function, attribute, smem_bytes) + (None,))

    def run(self, ctas, threads, iterations, pause=0):
        """Reports of all CTAs: lists of (clocks, nanoseconds, traffic, wrong)."""
        reports = check(driver.cuMemAlloc(ctas * 32))
        check(driver.cuMemsetD8(reports, 0, ctas * 32) + (None,))
        arguments = ((iterations, pause, int(reports), 0),
                     (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p))
        check(driver.cuLaunchKernel(self.function, ctas, 1, 1, threads, 1, 1, self.smem_bytes, 0,
                                    arguments, 0) + (None,))
        check(driver.cuCtxSynchronize() + (None,))
        words = (ctypes.c_longlong * (ctas * 4))()
        check(driver.cuMemcpyDtoH(ctypes.addressof(words), reports, ctas * 32) + (None,))
        check(driver.cuMemFree(reports) + (None,))
        return [words[i:i + 4] for i in range(0, ctas * 4, 4)]


def measure_products(sms):
    """Clocks of one m64nNk16 on an SM (N / 2 when the tensor cores are all that binds)."""
    rows = []
    for columns in (64, 80, 96, 128):
        for registers in (0, 1) if columns in (64, 128) else (0,):
            for warpgroups in (1, 2, 3):
                for traffic, pause in ((0, 0), (1, 0), (1, 600), (2, 0), (2, 600)):
                    if traffic and (columns not in (64, 128) or warpgroups == 1):
                        continue
                    defines = {"PRODUCTS": 1, "COLUMNS": columns, "A_IN_REGISTERS": registers, "WARPGROUPS": warpgroups,
                               "TRAFFIC": traffic}
                    smem = 1024 + warpgroups * 64 * 256 + columns * 256 + 32768
                    kernel = Kernel("products", smem, defines)
                    iterations = 4000
                    kernel.run(sms, 128 * (warpgroups + 1), 200, pause)
                    reports = kernel.run(sms, 128 * (warpgroups + 1), iterations, pause)
                    clocks = statistics.median(r[0] for r in reports)
                    rows.append({
                        "n": columns, "a": "registers" if registers else "shared", "warpgroups": warpgroups,
                        "traffic": ("none", "loads", "stores")[traffic], "pause": pause,
                        "clocks": clocks / (iterations * 8 * warpgroups), "ideal": columns / 2,
                        "traffic_bytes_per_clock": statistics.median(r[2] for r in reports) / clocks,
                        "ghz": statistics.median(r[0] / r[1] for r in reports)})
    return rows


def measure_loads(sms):
    """Clocks that one load of a warp takes of shared memory's pipe, by which lanes share an address."""
    patterns = {"one address": (1, 1), "4, by lane % 4": (1, 4), "8, by lane / 4": (4, 8), "16, by lane / 2": (2, 16),
                "32": (1, 32)}
    rows = []
    for lanes, (divisor, places) in patterns.items():
        row = {"addresses": lanes}
        for size in (16, 8, 4):
            kernel = Kernel("loads", 0, {"LOADS": size, "DIVISOR": divisor, "PLACES": places})
            iterations = 2000
            kernel.run(sms, 256, 100)
            reports = kernel.run(sms, 256, iterations)
            row[f"{size} bytes a lane"] = statistics.median(r[0] for r in reports) / (iterations * 16 * 8)
        rows.append(row)
    return rows


def measure_exchange(sms):
    """A tile of shared memory sent to the other CTA: clocks a tile, bytes a clock and direction."""
    rows = []
    for how in (0, 1, 2):
        for kilobytes in (2, 8, 16):
            for stages in (1, 2, 4):
                for one_way in (0, 1):
                    size = kilobytes * 1024
                    kernel = Kernel("exchange", size * (stages + 1), {
                        "EXCHANGE": 1, "HOW": how, "BYTES": size, "STAGES": stages, "ONE_WAY": one_way})
                    iterations = 4096
                    kernel.run(2, 256, 128)
                    for ctas in (2, sms // 2 * 2):
                        reports = kernel.run(ctas, 256, iterations)
                        if sum(r[3] for r in reports):
                            raise RuntimeError(f"exchange {how} of {size} bytes: words are wrong")
                        clocks = statistics.median(r[0] for r in reports) / iterations
                        rows.append({"how": ("bulk copy", "st.async", "st.shared::cluster")[how], "bytes": size,
                                     "stages": stages, "one_way": one_way, "ctas": ctas, "clocks": clocks,
                                     "bytes_per_clock": size / clocks})
    return rows


def measure_clock():
    """SM clock and power while PyTorch works, by nvidia-smi every 20 ms."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def product():
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        return lambda: a @ a

    def attention(head_dim, causal, backward):
        shape = (2, 2048 // head_dim, 16384, head_dim)
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=backward) for _ in "qkv")
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = scaled_dot_product_attention(q, k, v, is_causal=causal)
        gradient = torch.randn_like(out)

        def call():
            if backward:
                torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
            else:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    scaled_dot_product_attention(q, k, v, is_causal=causal)
        return call

    works = {"matrix product 8192^3": product()}
    for head_dim in (64, 128):
        for causal in (False, True):
            for backward in (False, True):
                name = f"cuDNN {'backward' if backward else 'forward'} d{head_dim}{' causal' if causal else ''} 2 x 16384"
                works[name] = attention(head_dim, causal, backward)
    rows = []
    for name, call in works.items():
        for pause in (0.0, 0.05):
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            watch = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits",
                                      "-lms", "20"], stdout=subprocess.PIPE, text=True)
            times, stop = [], time.time() + 1.5
            while time.time() < stop:
                time.sleep(pause)
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(3):
                    call()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) / 3)
            watch.terminate()
            samples = [tuple(float(x) for x in line.split(",")) for line in watch.communicate()[0].splitlines()
                       if line.count(",") == 1]
            late = samples[len(samples) // 2:] or [(0.0, 0.0)]
            rows.append({"work": name, "pause": pause, "ms": statistics.median(times),
                         "mhz": statistics.median(s[0] for s in late), "watts": statistics.median(s[1] for s in late)})
    return rows


def show(title, rows):
    print(f"\n{title}")
    if rows:
        print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", default="products,loads,exchange,clock", help="which measurements, by commas")
    options.add_argument("--json", help="also write the rows there")
    arguments = options.parse_args()
    check(driver.cuInit(0) + (None,))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))) + (None,))
    count = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    sms = check(driver.cuDeviceGetAttribute(count, device))
    parts = {"products": lambda: measure_products(sms), "loads": lambda: measure_loads(sms),
             "exchange": lambda: measure_exchange(sms), "clock": measure_clock}
    results = {}
    for part in arguments.part.split(","):
        results[part] = parts[part]()
        show(part, results[part])
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"command": sys.argv, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
