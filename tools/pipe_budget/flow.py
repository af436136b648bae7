"""How often each basic block of machine code runs, from how often each line of PTX did, and the loops of the roles.

A warp's count of a block is that of most of its instructions' lines; instructions that stay where they are
(loads of tensor memory, barriers, products) say more than arithmetic, which ptxas moves between blocks. The
retries of a wait (a loop that polls a barrier) are taken never to run: a wait counts once.
"""

import collections
import dataclasses

FIXED = {"LDTM", "STTM", "SYNCS", "BAR", "UTCHMMA", "UTCBAR", "UTMALDG", "UTMASTG", "STS", "LDS", "STG", "REDG", "USETMAXREG"}
FIXED_WEIGHT = 8


def polls(block):
    return any("PHASECHK" in i.opcode for i in block.code)


def retries(function):
    """Blocks that run only when a wait did not succeed at once: they poll in a loop, and nothing else leads there."""
    cold = set()
    for block in function.blocks:
        last = block.code[-1]
        if not (polls(block) and last.name == "BRA" and last.guard and len(block.after) == 2):
            continue
        failed = block.after[0] if last.guard.startswith("@!") else block.after[1]
        if failed != block.index and function.dominates(block.index, failed) and comes_to_poll(function, failed):
            cold |= {b.index for b in function.blocks if function.dominates(failed, b.index)}
    return cold


def comes_to_poll(function, start):
    """Whether the way from here is at once in a loop of one block that polls."""
    block = function.blocks[start]
    for _ in range(3):
        if polls(block):
            return block.index in block.after
        if len(block.after) != 1 or len(block.code) > 8:
            return False
        block = function.blocks[block.after[0]]
    return False


def block_counts(function, lines, cold=frozenset()):
    """Executions of each block by the warp that executed PTX lines as `lines` (line: times) says."""
    counts = []
    for block in function.blocks:
        votes = collections.Counter()
        for i in block.code:
            if i.line:
                votes[lines.get(i.line, 0)] += FIXED_WEIGHT if i.name in FIXED else 1
        counts.append(votes.most_common(1)[0][0] if votes and block.index not in cold else 0)
    return counts


@dataclasses.dataclass
class RoleLoop:
    role: str         # softmax, correction, mma, load, store; of a backward compute, reduce, mma, load
    loop: object      # sass.Loop
    blocks: list      # hot ones, in order of address
    masked: bool = False

    def code(self, function):
        return [i for b in self.blocks for i in function.blocks[b].code]


def tally(code):
    return collections.Counter(i.name for i in code)


def told_role(code, roles):
    """The role that most of the code's lines of PTX belong to; "" when they belong to none."""
    votes = collections.Counter(roles[i.line] for i in code if i.line in roles)
    return votes.most_common(1)[0][0] if votes else ""


def does_its_work(role, names, exponentials):
    waits = names["BAR"] + names["SYNCS"]   # a loop over the columns of O, inside the correction's, does not
    return {"softmax": exponentials, "compute": exponentials, "reduce": names["UBLKRED"] + names["REDG"], "mma": names["UTCHMMA"], "load": names["UTMALDG"], "store": names["UTMASTG"],
            "correction": names["LDTM"] and names["STTM"] and waits}.get(role, 0) > 0


def guessed_role(names, exponentials):
    """Of a kernel that does not say: what the loop does most likely is."""
    if exponentials >= 24:
        return "softmax"
    if names["UTCHMMA"] >= 8 and names["SYNCS"]:   # a loop over a product's steps, inside, does not wait
        return "mma"
    if names["UBLKRED"] + names["REDG"] >= 2:
        return "reduce"
    waits = names["BAR"] + names["SYNCS"]   # a loop over the columns of O, inside, does not
    if names["LDTM"] and names["STTM"] and names["FMUL2"] + names["FMUL"] >= 16 and waits:
        return "correction"
    if names["UTMALDG"]:
        return "load"
    if names["UTMASTG"]:
        return "store"
    return ""


def role_loops(function, cold, roles=None, is_backward=False):
    """Innermost loops that do a role's work. `roles`: {line of PTX: role}, as the kernel says; without it they are guessed."""
    found, taken = [], set()
    for loop in function.loops:
        blocks = sorted(loop.body - cold)
        if loop.header in cold or any(header in loop.body for header in taken):
            continue
        code = [i for b in blocks for i in function.blocks[b].code]
        names = tally(code)
        exponentials = sum(i.opcode.startswith("MUFU.EX2") for i in code)
        if roles:
            told = told_role(code, roles)
            role = told if does_its_work(told, names, exponentials) else ""
        else:
            role = guessed_role(names, exponentials)
            role = "compute" if role == "softmax" and is_backward else role
        if role:
            selects = names["FSEL"] + names["SEL"] + names["R2P"]
            found.append(RoleLoop(role, loop, blocks, role == "softmax" and selects >= 48))
            taken.add(loop.header)
    return found


def paths(function, role_loop):
    """(fewest, most) instructions of one way round the loop."""
    inside = set(role_loop.blocks)
    header = role_loop.loop.header
    best = {}

    def walk(node):
        if node in best:
            return best[node]
        best[node] = None
        size = len(function.blocks[node].code)
        ways = []
        for n in function.blocks[node].after:
            if n == header:
                ways.append((size, size))
            elif n in inside and (way := walk(n)):
                ways.append((size + way[0], size + way[1]))
        best[node] = (min(w[0] for w in ways), max(w[1] for w in ways)) if ways else None
        return best[node]

    return walk(header)


WORK = {"softmax": ("MUFU", "FMNMX3"), "compute": ("MUFU",), "reduce": ("UBLKRED", "REDG"), "mma": ("UTCHMMA",), "load": ("UTMALDG",), "store": ("UTMASTG",)}
MASKING = {"FSEL", "SEL", "R2P", "ISETP"}


def way_round(function, role_loop, masked=False, prefers=None):
    """Blocks of the way that does most of the role's work, with as little masking as can be (or as much), most of the
    instructions that `prefers` counts, and is the shortest of these. The correction's is the shortest."""
    inside, header, worth = set(role_loop.blocks), role_loop.loop.header, {}

    def of(block):
        names = tally(function.blocks[block].code)
        masking = sum(names[n] for n in MASKING) * (1 if masked else -1)
        liked = sum(names[n] * weight for n, weight in (prefers or {}).items())
        return sum(names[n] for n in WORK.get(role_loop.role, ())), masking, liked, -len(function.blocks[block].code)

    def walk(node):
        if node not in worth:
            worth[node] = None   # on the way: another loop inside is not walked again
            ways = [((0, 0, 0, 0), [])] if header in function.blocks[node].after else []
            ways += [w for n in function.blocks[node].after if n in inside and n != header and (w := walk(n))]
            if ways:
                best, rest = max(ways, key=lambda w: w[0])
                worth[node] = (tuple(x + y for x, y in zip(of(node), best)), [node] + rest)
        return worth[node]

    return walk(header)[1]


def hot_path(function, role_loop, counts=None):
    """Instructions of the most usual way round; without counts of that which does the work."""
    if not counts:
        return [i for b in way_round(function, role_loop) for i in function.blocks[b].code]
    inside, order, node = set(role_loop.blocks), [], role_loop.loop.header
    while node is not None and node not in order:
        order.append(node)
        node = usual_way(function, node, [n for n in function.blocks[node].after if n in inside and n not in order], counts)
    return [i for b in order for i in function.blocks[b].code]


def usual_way(function, node, ways, counts):
    """A block that only this one leads to tells how often that way was taken; where others lead to all, the counts do."""
    alone = [n for n in ways if function.blocks[n].before == [node] and counts[n] * 2 > counts[node]]
    return max(alone or ways, key=lambda n: (counts[n], -n), default=None)
