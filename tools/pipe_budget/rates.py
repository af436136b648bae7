"""Rates and latencies, one row each. Nothing else in this tool knows a number of the hardware.

`assumed` rows have not been measured on a Blackwell by this project; `source` says where the number is from.
"""

import dataclasses
import re

SMSPS = 4   # schedulers of an SM, each with a quarter of every unit below


@dataclasses.dataclass(frozen=True)
class Rate:
    unit: str
    opcodes: str        # regular expression, whole opcode name
    lanes: int          # of an SM a clock
    operations: int     # a lane's operations of one instruction
    assumed: bool
    source: str

    def clocks(self):
        """Of the scheduler's quarter for one warp instruction."""
        return 32 * self.operations * SMSPS / self.lanes


PAPER = "FlashAttention-4 (arXiv 2603.05451), section 2"
GUIDE = "CUDA C++ Programming Guide, throughput of arithmetic instructions, 9.0"

RATES = [
    Rate("mufu", r"MUFU", 16, 1, False, PAPER + ": 16 a clock and SM on B200"),
    Rate("fma", r"F(FMA|ADD|MUL)2", 128, 2, True, "128 FMA a clock and SM; two in one instruction take twice as long"),
    Rate("fma", r"FFMA|FADD|FMUL|HFMA2|HADD2|HMUL2", 128, 1, True, GUIDE),
    Rate("fma", r"IMAD", 64, 1, True, GUIDE + ": 32-bit multiply-add on half of the FMA lanes"),
    Rate("convert", r"F2FP|F2F|I2F|F2I|I2FP", 64, 1, True, "conversions to packed 16-bit types at half rate, as on 9.0"),
    Rate("alu", r"FMNMX3?|FSETP|FSEL|FCHK|ISETP|SEL|LEA|LOP3|SHF|IADD3?|VIADD|VIADDMNMX|VIMNMX3?|IMNMX|PRMT|MOV|R2P|P2R|"
         r"PLOP3|BMSK|SGXT|FLO|POPC|CS2R|VOTE|IABS", 64, 1, True, GUIDE + ": compare, logic, shift, integer add; FMNMX3 as FMNMX"),
    Rate("uniform", r"U(?!TC|TM|SETMAXREG).*|R2UR|S2UR|LDCU|ELECT|REDUX", 64, 1, True, "one uniform datapath a scheduler, an instruction in two clocks"),
    Rate("tensor_memory", r"LDTM|STTM", 128, 1, True, "128 B a clock for each quarter of the lanes; no figure is published"),
    Rate("shared", r"LDS|STS|ATOMS|LDSM|STSM|STAS", 128, 1, True, PAPER + ": 128 B a clock and SM"),
]

# sm_103a: twice the exponentials.
MUFU_LANES = {"sm_100a": 16, "sm_103a": 32}

# The SM's units, not a scheduler's.
TENSOR_FLOPS = 8192          # dense 16-bit, a clock and SM (PAPER)
SHARED_BYTES = 128           # a clock and SM, reads and writes together (PAPER)
REDUCE_BYTES = 15.3          # a clock and SM, f32 sums in the L2 cache: measured on an H200, 29 GB/s an SM while the sums fit the L2; here at 1.9 GHz
AROUND_BYTES = 14.0          # of DRAM for each row and channel, before and after a backward's main kernel
DRAM_BYTES = 7e12            # a second
SMS = 148


@dataclasses.dataclass(frozen=True)
class Latency:
    name: str
    clocks: int
    source: str


LATENCIES = {row.name: row for row in [
    Latency("alu", 4, "dependent issue of ALU, FMA and conversion; 4 to 5 on 9.0 by public microbenchmarks"),
    Latency("packed", 5, "dependent issue of an f32x2 instruction: its second half a clock or two later"),
    Latency("mufu", 20, "result of MUFU; 18 to 30 on 8.0 and 9.0 by public microbenchmarks"),
    Latency("uniform", 12, "R2UR and the uniform datapath to their use; 9.0 alike"),
    Latency("shared", 30, "LDS; 9.0 alike"),
    Latency("tensor_load", 40, "tcgen05.ld before its first column; no figure is published"),
    Latency("tensor_store", 40, "tcgen05.st until tcgen05.wait::st passes; no figure is published"),
    Latency("barrier", 20, "named barrier and mbarrier instructions at the warp that issues them"),
    Latency("commit", 130, "end of the last product to the waiting warp's next instruction (tcgen05.commit, try_wait)"),
    Latency("arrive", 90, "arrival of the last warp to the next instruction of the warp that issues products"),
    Latency("product", 30, "tcgen05.mma from its issue to the tensor core's start"),
    Latency("load", 800, "TMA: a request until its bytes come, from the L2 cache; 600 to 1000 on 9.0"),
    Latency("bulk", 160, "a bulk reduction beside its bytes, until the next may take its place: measured on an H200, 4 to 32 KiB at a time"),
    Latency("peer", 210, "to the other CTA's shared memory and its barrier; a load from there takes 180 to 210 on 9.0"),
    Latency("beside", 4500, "of a CTA of the backward, beside its blocks: start, K and V, the first S; dK and dV in the end; 4000 to 5000 on 9.0"),
    Latency("launch", 2000, "of a CTA until its first product: start, barriers, the first TMA load (1400 to 2000 alone)"),
]}

# Published shares are of 2.25e15 FLOP/s, which is 1.856 GHz on 148 SMs. The clock is the highest when the tensor
# core is little used and falls as it is used more. Assumed: a line between two points. The second is fitted to the
# self-check's three shares, between 1.17 GHz (cuBLAS, whose products fill the tensor core, at 1.41e15 for 8192 cubed
# in bf16: gau-nernst/learn-cuda 1454f84) and what 1.613e15 needs at least (PAPER): 1.33 GHz.
NOMINAL_GHZ = 2.25e15 / (148 * TENSOR_FLOPS) / 1e9
CLOCK_LOW_USE = (0.5, 1.965)     # share of the clocks that the tensor core works, GHz
CLOCK_FULL_USE = (1.0, 1.40)


def clock_ghz(share):
    (a, fast), (b, slow) = CLOCK_LOW_USE, CLOCK_FULL_USE
    return fast if share <= a else fast + (slow - fast) * (min(share, b) - a) / (b - a)


def rate_of(instruction, arch="sm_100a"):
    for rate in RATES:
        if re.fullmatch(rate.opcodes, instruction.name):
            if rate.unit == "mufu":
                return dataclasses.replace(rate, lanes=MUFU_LANES[arch])
            return rate
    return None
