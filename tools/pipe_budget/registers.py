"""The highest register that each role's code names, and what goes to local memory."""

import re

from . import operands


def highest(instructions):
    numbers = [-1]
    for instruction in instructions:
        reads, writes = operands.reads_writes(instruction)
        numbers += [int(r[1:]) for r in reads + writes if r[0] == "R"]
    return max(numbers)


def regions(function):
    """(setmaxnreg value, blocks that run only after it); the code before any has value None."""
    at = []
    for block in function.blocks:
        for i in block.code:
            if i.name == "USETMAXREG":
                at.append((block.index, int(re.findall(r"0x[0-9a-f]+|\d+", i.operands)[-1], 0)))
    taken = set()
    found = []
    for start, value in at:
        inside = [b.index for b in function.blocks if function.dominates(start, b.index)]
        inner = {other for other, _ in at if other != start and function.dominates(start, other)}
        inside = [b for b in inside if not any(function.dominates(i, b) for i in inner)]
        taken.update(inside)
        found.append((value, inside))
    return [(None, [b.index for b in function.blocks if b.index not in taken])] + found


def roles(kernel):
    rows = []
    for value, blocks in regions(kernel.function):
        names = sorted({r.role for r in kernel.loops if r.loop.header in blocks})
        code = [i for b in blocks for i in kernel.function.blocks[b].code]
        if value is None or len(code) > 16:
            rows.append({"roles": names, "setmaxnreg": value, "registers": highest(code) + 1})
    return rows


def spills(kernel):
    """Bytes of stack, and loads and stores of local memory: where, and whether inside a loop."""
    function = kernel.function
    in_loops = set().union(*[loop.body for loop in function.loops if loop.header not in kernel.cold] or [set()])
    rows = []
    for block in function.blocks:
        for i in block.code:
            if i.name in ("LDL", "STL"):
                rows.append({"opcode": i.opcode, "address": i.address, "in_loop": block.index in in_loops,
                             "roles": sorted({r.role for r in kernel.loops if block.index in r.loop.body})})
    stack = [i for i in function.code[:8] if re.match(r"R1,.*R1,.*-0x[0-9a-f]+", i.operands)]
    size = int(re.search(r"-(0x[0-9a-f]+)", stack[0].operands)[1], 16) if stack else 0
    return {"stack_bytes": size, "local": rows}
