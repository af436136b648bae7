"""Which registers an instruction reads and writes, as names: "R12", "UR4", "P0", "UP1"."""

import re

NAME = re.compile(r"(?<![\w.])(U?[RP]\d+)(?!\w)")
VECTOR = re.compile(r"\.x(\d+)(?:\.|$)")
WIDE = re.compile(r"\.(64|128)(?:\.|$)")
PACKED = {"FFMA2", "FADD2", "FMUL2"}
# Nothing is written to a register.
NO_RESULT = {"STTM", "STS", "STAS", "STG", "STL", "ST", "UTCHMMA", "UTCBAR", "BRA", "BAR", "EXIT", "FENCE", "UTMALDG",
             "UTMASTG", "NOP", "RED", "REDG", "UBLKRED", "UBLKCP", "DEPBAR", "WARPSYNC", "NANOSLEEP", "USETMAXREG", "MEMBAR"}


def expanded(name, width):
    kind, number = re.match(r"(U?[RP])(\d+)", name).groups()
    return [f"{kind}{int(number) + i}" for i in range(width)]


def width_of(instruction):
    """Registers that the data operand of an instruction spans."""
    if instruction.name in ("LDTM", "STTM"):
        match = VECTOR.search(instruction.opcode)
        return int(match[1]) if match else 1
    match = WIDE.search(instruction.opcode)
    if match and instruction.name in ("LDS", "STS", "STAS", "LDG", "STG", "LDL", "STL", "LDC", "LD", "ST"):
        return int(match[1]) // 32
    return 2 if instruction.name in PACKED or instruction.opcode.startswith(("IMAD.WIDE", "CS2R")) else 1


def split_operands(text):
    depth, part, parts = 0, "", []
    for c in text:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()] if part.strip() else parts


def reads_writes(instruction):
    """(registers read, registers written)."""
    reads = NAME.findall(instruction.guard.lstrip("@!"))
    writes = []
    parts = split_operands(instruction.operands)
    width = width_of(instruction)
    results = 0 if instruction.name in NO_RESULT else 1
    while 0 < results < len(parts) and re.fullmatch(r"U?P[T\d]+", parts[results]) and \
            re.fullmatch(r"U?[RP](\d+|Z|T)", parts[results - 1]) and "SET" not in instruction.name:
        results += 1   # predicates beside the result: carry, elect
    for i, part in enumerate(parts):
        names = NAME.findall(part)
        if i < results and re.fullmatch(r"U?[RP]\d+", part):
            writes += expanded(part, width if part[0] == "R" and i == 0 else 1)
        elif instruction.name in ("STTM", "STS", "STAS", "STG", "STL", "ST") and not part.startswith(("[", "tmem", "desc")):
            reads += [r for n in names for r in (expanded(n, width) if n[0] == "R" else [n])]
        elif ".F32x2" in part:
            reads += [r for n in names for r in expanded(n, 2)]
        else:
            reads += names
    return reads, writes
