"""Machine code as nvdisasm prints it: instructions, basic blocks, loops.

`nvdisasm -c -gp` of a cubin that ptxas made with --generate-line-info also says which line of the PTX text an
instruction comes from; the option does not change the code.
"""

import collections
import dataclasses
import re

LINE = re.compile(r'^\s*//## File "[^"]*", line (\d+)')
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
TARGET = re.compile(r"\(?(\.L_x_\d+)\)?")

ENDS = {"BRA", "BRX", "EXIT", "RET", "JMP", "JMX", "BREAK", "BPT"}


@dataclasses.dataclass
class Instruction:
    address: int
    guard: str        # "@P0", "@!UP1" or ""
    opcode: str       # with its modifiers: "MUFU.EX2"
    operands: str
    line: int         # of the PTX text; 0: unknown
    targets: list     # labels

    @property
    def name(self):
        return self.opcode.split(".", 1)[0]

    def goes_on(self):
        """Whether the next instruction can follow."""
        if self.name not in ENDS:
            return True
        return bool(self.guard) or (self.name == "BRA" and bool(re.match(r"!?U?P\d", self.operands)))


@dataclasses.dataclass
class Block:
    index: int
    code: list
    after: list = dataclasses.field(default_factory=list)
    before: list = dataclasses.field(default_factory=list)

    @property
    def address(self):
        return self.code[0].address


class Function:
    """One kernel: blocks in order of address; block 0 is entered first."""

    def __init__(self, name, code, labels):
        self.name = name
        self.code = code
        self.blocks = split(code, labels)
        self.dominators = dominators(self.blocks)
        self.loops = find_loops(self.blocks, self.dominators)

    def dominates(self, a, b):
        return a in self.dominators[b]


def parse(text):
    """The functions of a listing, by name."""
    functions = {}
    code, labels, line = None, None, 0
    for row in text.splitlines():
        if match := SECTION.match(row):
            code, labels, line = [], {}, 0
            functions[match[1]] = (code, labels)
        elif code is None:
            continue
        elif match := LINE.match(row):
            line = int(match[1])
        elif match := LABEL.match(row):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.search(row):
            opcode, operands = match[3], match[4]
            if opcode.endswith("."):   # "LDTM. x32 R4, ..." is one word less its blank
                more, _, operands = operands.partition(" ")
                opcode += more
            targets = TARGET.findall(row[match.start(4):]) if opcode.split(".")[0] in ENDS else []
            code.append(Instruction(int(match[1], 16), match[2] or "", opcode, operands, line, targets))
    return {name: Function(name, code, labels) for name, (code, labels) in functions.items() if code}


def split(code, labels):
    starts = {0}
    for i, instruction in enumerate(code):
        if instruction.name in ENDS:
            starts.add(i + 1)
            starts.update(labels[t] for t in instruction.targets if t in labels)
    starts = sorted(s for s in starts if s < len(code))
    blocks = [Block(k, code[a:b]) for k, (a, b) in enumerate(zip(starts, starts[1:] + [len(code)]))]
    at = {start: block for start, block in zip(starts, blocks)}
    for k, block in enumerate(blocks):
        last = block.code[-1]
        next_blocks = [at[labels[t]].index for t in last.targets if t in labels]
        if last.goes_on() and k + 1 < len(blocks):
            next_blocks.append(k + 1)
        block.after = list(dict.fromkeys(next_blocks))
        for n in block.after:
            blocks[n].before.append(k)
    return blocks


def dominators(blocks):
    """Of each block those that every way to it passes, itself included; of unreachable blocks only itself."""
    order, seen, stack = [], {0}, [(0, iter(blocks[0].after))]
    while stack:
        node, rest = stack[-1]
        for n in rest:
            if n not in seen:
                seen.add(n)
                stack.append((n, iter(blocks[n].after)))
                break
        else:
            order.append(node)
            stack.pop()
    found = {0: frozenset({0})}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = [found[p] for p in blocks[node].before if p in found]
            new = frozenset.intersection(*known) | {node}
            if found.get(node) != new:
                found[node] = new
                changed = True
    return [found.get(k, frozenset({k})) for k in range(len(blocks))]


@dataclasses.dataclass
class Loop:
    header: int
    body: frozenset   # blocks, the header included


def find_loops(blocks, dominated_by):
    """Natural loops, those of one header joined; inner ones first."""
    bodies = collections.defaultdict(set)
    for block in blocks:
        for header in block.after:
            if header not in dominated_by[block.index]:
                continue
            body, stack = {header}, [block.index]
            while stack:
                node = stack.pop()
                if node not in body:
                    body.add(node)
                    stack.extend(blocks[node].before)
            bodies[header] |= body
    return sorted((Loop(h, frozenset(b)) for h, b in bodies.items()), key=lambda loop: len(loop.body))
