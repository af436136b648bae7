"""Does the tool find what is known of kernels that others wrote? A folder holds them, under these names.

original_bwd_d128, original_bwd_d128_one, original_bwd_d64: flash-attn-4's backward, dense, ptxas 13.5; of the first pairs of
CTAs, of the others one (FA_DISABLE_2CTA=1). Published (#2280, 4 x 8192 rows of 16 heads; #2804, 4 x 16384 of 32): 1360, 1247 and 835
TFLOP/s, which must be met within 10 %, the first by the second within 5 %.

original_d128, original_d128_causal, original_d64: flash-attn-4 4.0.0b36 (CuTe DSL 4.8.1), bf16 forward with LSE
(causal without), dense, ptxas 13.5; open_d128, open_d64: the generated forward kernels of NVIDIA's cudnn-frontend,
ptxas 13.0. Each as .sass, .cubin or .ptx. What is expected: counts of SASS instructions and published shares of
2.25e15 FLOP/s (#2280 and #2605 of Dao-AILab/flash-attention), which must be met within 10 %.
"""

import dataclasses
import pathlib

from . import backward, budget, inputs, sass

COUNT_TOLERANCE = 0.02
SHARE_TOLERANCE = 0.10


@dataclasses.dataclass
class Expected:
    softmax: int
    mma: int = 0
    masked: int = 0
    correction: int = 0    # when it rescales both tiles
    opcodes: dict = dataclasses.field(default_factory=dict)
    share: float = 0.0
    causal: bool = False


KERNELS = {
    "original_d128": Expected(543, 202, correction=185, share=0.68, opcodes={"MUFU": 105, "FFMA2": 100, "FADD2": 100, "F2FP": 64, "FMNMX3": 62, "FMNMX": 28}),
    "original_d128_causal": Expected(514, masked=689, share=0.63, causal=True, opcodes={"MUFU": 113, "FFMA2": 88, "FADD2": 88}),
    "original_d64": Expected(515, 173, correction=107, share=0.54, opcodes={"MUFU": 113, "FFMA2": 88, "FADD2": 88, "FMNMX": 20}),
    "open_d128": Expected(467, 274, masked=852, causal=True, opcodes={"MUFU": 129}),
    "open_d64": Expected(460, 214, masked=847, causal=True, opcodes={"MUFU": 129}),
}


@dataclasses.dataclass
class ExpectedBackward:
    compute: int        # instructions of a warp and block; 0: not known
    problem: tuple      # batch x heads, sequence
    tflops: int


BACKWARD = {
    "original_bwd_d128": ExpectedBackward(548, (64, 8192), 1360),
    "original_bwd_d128_one": ExpectedBackward(0, (64, 8192), 1247),
    "original_bwd_d64": ExpectedBackward(449, (128, 16384), 835),
}
RATIO = ("original_bwd_d128", "original_bwd_d128_one", 0.05)


def compare(name, what, found, expected, tolerance):
    good = abs(found - expected) <= tolerance * expected + 1e-9
    return {"kernel": name, "what": what, "expected": expected, "found": found, "tolerance": tolerance, "good": good}


def check_kernel(name, kernel, expected):
    report = budget.analyse(kernel, causal=expected.causal, tile_a_cta=expected.causal)
    loops = {(row["role"], row["masked"]): row for row in report["loops"]}
    softmax = loops[("softmax", False)]
    rows = [compare(name, "softmax", softmax["most"], expected.softmax, 0)]
    if expected.mma:
        rows.append(compare(name, "mma", loops[("mma", False)]["most"], expected.mma, COUNT_TOLERANCE))
    if expected.masked:
        rows.append(compare(name, "softmax with mask", loops[("softmax", True)]["most"], expected.masked, 0))
    if expected.correction:
        rows.append(compare(name, "correction, rescaling", loops[("correction", False)]["most"], expected.correction, 0))
    for opcode, count in expected.opcodes.items():
        rows.append(compare(name, opcode, softmax["opcodes"].get(opcode, 0), count, 0))
    if expected.share:
        rows.append(compare(name, "share of nominal", report["chain"]["share_of_nominal"], expected.share, SHARE_TOLERANCE))
    return rows


def file_of(folder, name):
    files = [pathlib.Path(folder) / f"{name}.{ending}" for ending in ("sass", "cubin", "ptx")]
    return next((f for f in files if f.exists()), None)


def check_backward(folder, ptxas=None, nvdisasm=None):
    rows, found = [], {}
    for name, expected in BACKWARD.items():
        if (path := file_of(folder, name)) is None:
            continue
        text = inputs.listing(path, None, ptxas, nvdisasm)
        report = backward.analyse(budget.Kernel(inputs.choose(sass.parse(text), None), budget.arch_of(text)))
        found[name] = backward.predict(report["head_dim"], report["period"], expected.problem)["tflops"]
        if expected.compute:
            rows.append(compare(name, "compute", report["instructions"]["compute"][0], expected.compute, COUNT_TOLERANCE))
        rows.append(compare(name, "TFLOP/s", found[name], expected.tflops, SHARE_TOLERANCE))
    a, b, tolerance = RATIO
    if a in found and b in found:
        published = BACKWARD[a].tflops / BACKWARD[b].tflops
        rows.append(compare(a, f"by {b}", round(found[a] / found[b], 3), round(published, 3), tolerance))
    return rows


def check_folder(folder, ptxas=None, nvdisasm=None):
    """Rows of (kernel, what, expected, found, good); those of kernels that the folder lacks are not there."""
    rows = []
    for name, expected in KERNELS.items():
        if (path := file_of(folder, name)) is None:
            continue
        text = inputs.listing(path, None, ptxas, nvdisasm)
        kernel = budget.Kernel(inputs.choose(sass.parse(text), None), budget.arch_of(text))
        rows += check_kernel(name, kernel, expected)
    rows += check_backward(folder, ptxas, nvdisasm)
    if not rows:
        raise inputs.InputError(f"--self-check {folder}: none of {', '.join([*KERNELS, *BACKWARD])}; accepted: a folder with NAME.sass, .cubin or .ptx of these")
    return rows
