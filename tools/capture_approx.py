#!/usr/bin/env python3
"""What the approximate instructions of a GPU return, beside the correctly rounded value.

capture_approx.py OUT.npz INSTRUCTION START COUNT STRIDE [INSTRUCTION START COUNT STRIDE ...]

Runs INSTRUCTION (ex2.approx.ftz.f32, tanh.approx.bf16, rcp.approx.ftz.f64 ...) on the arguments whose bits
are START + i * STRIDE for i below COUNT, on the GPU of this machine (driver API and numpy only). Of .f64,
those are the upper halves of argument and result; the instructions take and give zeros below. OUT holds,
for each .f32 instruction, the difference in units of the last place between the result's bits and the
double-precision function rounded to nearest, else the result's bits; NAME.crc is the CRC-32 of the bits.
"""

import ctypes
import sys
import zlib

import numpy as np

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from ptx_rows.hardware import Driver  # noqa: E402  (a module beside this script)

REFERENCE = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}
BODY = {
    "f32": ".reg .f32 %x, %y; mov.b32 %x, %c; {} %y, %x; mov.b32 %c, %y;",
    "f16": ".reg .b16 %x, %y; cvt.u16.u32 %x, %c; {} %y, %x; cvt.u32.u16 %c, %y;",
    "f64": ".reg .f64 %x, %y; mov.b64 %x, {{0, %c}}; {} %y, %x; {{.reg .b32 %l; mov.b64 {{%l, %c}}, %y;}}",
}


def type_of(instruction):
    return instruction.rsplit(".", 1)[1].replace("bf16", "f16")


def kernel(instruction):
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 start, .param .u32 stride) {{
  .reg .b64 %o, %a; .reg .b32 %i, %n, %c, %s, %t;
  ld.param.u64 %o, [out]; ld.param.u32 %s, [start]; ld.param.u32 %t, [stride];
  mov.u32 %i, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %i, %c, %n, %i;
  mad.lo.u32 %c, %i, %t, %s; {BODY[type_of(instruction)].format(instruction)}
  mul.wide.u32 %a, %i, 4; add.s64 %o, %o, %a; st.global.u32 [%o], %c; ret; }}
"""


def nearest(instruction, bits):
    with np.errstate(all="ignore"):
        return REFERENCE[instruction.split(".")[0]](bits.view(np.float32).astype(np.float64)).astype(np.float32)


def capture(driver, instruction, start, count, stride):
    handle = driver.load(kernel(instruction).encode())
    function = driver.function(handle, "k")
    out = driver.allocate(count * 4)
    values = [out, ctypes.c_uint32(start), ctypes.c_uint32(stride)]
    arguments = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values))
    driver.call("cuLaunchKernel", function, count // 256, 1, 1, 256, 1, 1, 0, None, arguments, None)
    driver.call("cuCtxSynchronize")
    result = np.empty(count, np.uint32)
    driver.call("cuMemcpyDtoH_v2", result.ctypes.data_as(ctypes.c_void_p), out, ctypes.c_size_t(count * 4))
    driver.call("cuMemFree_v2", out)
    crc = np.uint32(zlib.crc32(result.tobytes()))
    if type_of(instruction) != "f32":
        return result, crc
    bits = (start + np.arange(count, dtype=np.uint64) * stride).astype(np.uint32)
    difference = (result - nearest(instruction, bits).view(np.uint32)).view(np.int32)
    print(f"{instruction} {start:#x} {count} {stride}: {np.count_nonzero(difference)} differ, "
          f"from {difference.min()} to {difference.max()}", flush=True)
    for small in (np.int8, np.int16):
        if np.array_equal(difference.astype(small), difference):
            return difference.astype(small), crc
    return difference, crc


def main():
    out, words = sys.argv[1], sys.argv[2:]
    driver, arrays = Driver(), {}
    for i in range(0, len(words), 4):
        instruction, (start, count, stride) = words[i], (int(w, 0) for w in words[i + 1:i + 4])
        name = f"{instruction}.{start:08x}.{count}.{stride}"
        arrays[name], arrays[name + ".crc"] = capture(driver, instruction, start, count, stride)
    np.savez_compressed(out, **arrays)


if __name__ == "__main__":
    if len(sys.argv) < 6 or len(sys.argv) % 4 != 2:
        sys.exit(__doc__)
    main()
