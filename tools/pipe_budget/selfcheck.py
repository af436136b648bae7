"""Does the tool find what is known of kernels that others wrote? A folder holds them, under these names.

original_d128, original_d128_causal, original_d64: flash-attn-4 4.0.0b36 (CuTe DSL 4.8.1), bf16 forward with LSE
(causal without), dense, ptxas 13.5; open_d128, open_d64: the generated forward kernels of NVIDIA's cudnn-frontend,
ptxas 13.0. Each as .sass, .cubin or .ptx. What is expected: counts of SASS instructions and published shares of
2.25e15 FLOP/s (#2280 and #2605 of Dao-AILab/flash-attention), which must be met within 10 %.
"""

import dataclasses
import pathlib

from . import budget, inputs, sass

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


def check_folder(folder, ptxas=None, nvdisasm=None):
    """Rows of (kernel, what, expected, found, good); those of kernels that the folder lacks are not there."""
    rows = []
    for name, expected in KERNELS.items():
        files = [pathlib.Path(folder) / f"{name}.{ending}" for ending in ("sass", "cubin", "ptx")]
        path = next((f for f in files if f.exists()), None)
        if path is None:
            continue
        text = inputs.listing(path, None, ptxas, nvdisasm)
        kernel = budget.Kernel(inputs.choose(sass.parse(text), None), budget.arch_of(text))
        rows += check_kernel(name, kernel, expected)
    if not rows:
        raise inputs.InputError(f"--self-check {folder}: none of {', '.join(KERNELS)}; accepted: a folder with NAME.sass, .cubin or .ptx of these")
    return rows
