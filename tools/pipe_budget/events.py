"""One SM in time: warps of a scheduler, the tensor core, copies, and the shared memory that they all use.

A stream does its operations in order, each when its registers are there, its unit is free and its gates are open. The one
whose turn comes first goes first; of warps that can issue in the same clock, the one that has waited longest. Shared
memory serves requests in the order in which they come: 128 bytes a clock for all.
"""

import collections
import dataclasses

NEVER = float("inf")
LONGEST = 2_000_000   # clocks: what a simulation takes is a tenth of it


@dataclasses.dataclass
class Op:
    unit: str = ""
    busy: float = 0           # clocks of the unit
    latency: float = 0        # until its registers are there
    reads: tuple = ()
    writes: tuple = ()
    gates: tuple = ()         # (event, rounds later): waits for that of this round, or of so many rounds later
    tells: tuple = ()         # (event, delay, rounds later)
    stores: float = 0         # clocks until what it stores can be told of
    product: str = ""         # of the tensor core: queued there
    job: str = ""             # of a copy engine: queued there


class Stream:
    """Operations in order, over and over. `issues`: its operations take the scheduler's one issue a clock."""

    def __init__(self, name, ops, issues=True):
        self.name, self.ops, self.issues = name, ops, issues
        self.at, self.round, self.last, self.stored, self.ready = 0, 0, -1.0, 0.0, {}


class Machine:
    """`told`: how many streams tell an event in each round. Events of rounds before the first have happened."""

    def __init__(self, streams, told):
        self.streams, self.told = streams, told
        self.free = collections.defaultdict(float)
        self.events, self.heard = {}, collections.Counter()
        self.latest = collections.defaultdict(float)
        self.queues = collections.defaultdict(list)
        self.work = collections.Counter()

    def when(self, event, number):
        return 0.0 if number < 0 else self.events.get((event, number), NEVER)

    def tell(self, event, number, time):
        key = (event, number)
        self.heard[key] += 1
        self.latest[key] = max(self.latest[key], time)
        if self.heard[key] == self.told.get(event, 1):
            self.events[key] = self.latest[key]

    def earliest(self, stream):
        op = stream.ops[stream.at]
        time = stream.last + 1 if stream.issues else stream.last
        for register in (*op.reads, *op.writes):
            time = max(time, stream.ready.get(register, 0))
        if op.unit and op.unit != "shared":
            time = max(time, self.free[op.unit])
        if stream.issues:
            time = max(time, self.free["issue"])
        for event, later in op.gates:
            time = max(time, self.when(event, stream.round + later))
        if op.job:
            queue = self.queues[op.job]
            time = max(time, queue[0]) if queue else NEVER
        return time

    def use(self, unit, busy, time):
        """When the unit is done with it: the shared memory takes requests in turn, other units are free by now."""
        start = max(time, self.free[unit]) if unit == "shared" else time
        self.free[unit] = start + busy
        self.work[unit] += busy
        return start + busy

    def do(self, stream, time):
        op = stream.ops[stream.at]
        done = self.use(op.unit, op.busy, time) if op.unit else time
        if stream.issues:
            self.free["issue"] = time + 1
            self.work["issue"] += 1
        elif op.unit == "shared":
            time = done
        if op.job:
            self.queues[op.job].pop(0)
        if op.product:
            self.queues[op.product].append(time + op.latency)
        for register in op.writes:
            stream.ready[register] = max(time, done if op.unit == "shared" else 0) + op.latency
        if op.stores:
            stream.stored = max(stream.stored, done + op.stores)
        for event, delay, later in op.tells:
            at = max(time if stream.issues else done, stream.stored)
            self.tell(event, stream.round + later, at + delay)
        stream.last = time
        stream.at += 1
        if stream.at == len(stream.ops):
            stream.at, stream.round = 0, stream.round + 1

    def run(self, event, rounds):
        """Until an event has happened so often; when it did, each time."""
        time = 0.0
        while (event, rounds - 1) not in self.events:
            times = [self.earliest(s) for s in self.streams]
            time = max(time, min(times))
            if time > LONGEST:
                stuck = ", ".join(f"{s.name} at {s.at} of round {s.round}" for s, t in zip(self.streams, times) if t == NEVER)
                raise ValueError(f"the roles wait for one another: the order of this kernel is not that of the model ({stuck})")
            able = [s for s, t in zip(self.streams, times) if t <= time]
            self.do(min(able, key=lambda s: (s.issues, s.last)), time)
        return [self.events[event, n] for n in range(rounds)]
