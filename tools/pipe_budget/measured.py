"""What fa4_measure_rates measured beside what rates.py assumes."""

import json
import pathlib

from . import inputs, rates, sass

# Name of a measured row: an instruction of that kind, and the latency's row.
INSTRUCTIONS = {
    "mufu ex2": ("MUFU", "mufu"), "fma": ("FFMA", "alu"), "fma f32x2": ("FFMA2", "packed"), "fma add f32x2": ("FADD2", "packed"),
    "fma mad": ("IMAD", "alu"), "alu lop3": ("LOP3", "alu"), "alu max": ("FMNMX", "alu"), "alu max3": ("FMNMX3", "alu"),
    "convert": ("F2FP", "alu"), "shared load": ("LDS", "shared"),
    "tensor_memory load x2": ("", "tensor_load"), "tensor_memory store x2": ("", "tensor_store"),
}


def rows(file):
    """(name, clocks assumed, measured, latency assumed, measured)."""
    try:
        document = json.loads(pathlib.Path(file).read_text())
        found = {row["name"]: (row["clocks"], row["dependent"]) for row in document["rows"]}
        architecture, emulated = document["architecture"], document["emulated"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise inputs.InputError(f"--measured {file}: {error}; accepted: what fa4_measure_rates prints") from error
    if emulated:
        raise inputs.InputError(f"--measured {file}: is of an emulated device, which has no time; accepted: of a GPU")
    result = []
    for name, (clocks, dependent) in found.items():
        opcode, latency = INSTRUCTIONS.get(name, ("", ""))
        rate = rates.rate_of(sass.Instruction(0, "", opcode, "", 0, []), architecture) if opcode else None
        result.append((name, rate.clocks() if rate else "-", clocks, rates.LATENCIES[latency].clocks if latency else "-", dependent))
    return result
