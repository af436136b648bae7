"""What the peer benchmarks on a GPU share: who takes part, interleaved rounds, ratios, tables.

Rounds run every call for a slice, one after the other, in an order that changes from round to round: what
drifts on the card then meets all of them alike, and figures of one round belong together. Who comes after
whom changes as well: a card whose power limit binds is slower for a while behind the call that took most.
"""
import math
import os
import random
import statistics
import sys
import time

try:
    import torch
except ImportError as missing:
    print(f"{os.path.basename(sys.argv[0])}: {missing}; pip install torch, for this Python", file=sys.stderr)
    sys.exit(2)

SLICE_MS = 25  # of one call in one round
LEAD_SLICES = 4  # untimed, where a call's own load is to set the clock
RESAMPLES = 2000
MATMUL = 8192
MATMUL_FLOPS = 2 * MATMUL**3
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def random_tensor(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def product(dtype):
    """A matrix product that runs beside the rows: the ceiling of the same minute."""
    a, b = random_tensor(MATMUL, MATMUL, dtype=dtype), random_tensor(MATMUL, MATMUL, dtype=dtype)
    return lambda: a @ b


def reason_of(problem):
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__


def choose(asked, loaders, hints):
    """What each peer's loader returns: of the names asked for, else of each that can be loaded.

    hints say, for those that have to be installed, how.
    """
    names = list(loaders) if asked is None else asked.split(",")
    for name in names:
        if name not in loaders:
            raise ValueError(f"--peers {asked}: {name}; accepted: {', '.join(loaders)}")
    loaded = {}
    for name in names:
        try:
            loaded[name] = loaders[name]()
        except Exception as problem:  # what a peer imports fails in many ways without its GPU
            reason = f"{type(problem).__name__}: {problem}"
            if asked is not None:
                raise ValueError(f"--peers {asked}: {name} cannot be loaded ({reason}); {hints[name]}") from problem
            print(f"peers: without {name} ({reason}); {hints[name]}", file=sys.stderr)
    return loaded


def time_of(call, repeats):
    """Milliseconds of one call, the mean of `repeats` in a row."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / repeats


def order_of_round(names, r):
    """The names in the order of round r.

    Rows of a Williams design (Australian Journal of Scientific Research A 2, 1949): in n rounds of an even
    number n of names, in 2 n of an odd one, each stands at each place and directly behind each other one
    equally often.
    """
    n = len(names)
    zigzag = [(i + 1) // 2 if i % 2 else n - i // 2 for i in range(n)]
    order = [names[(place + r) % n] for place in zigzag]
    return order[::-1] if n % 2 and r % 2 else order


def interleave(calls, rounds, pause, sustained=False):
    """Milliseconds of each call in each round.

    sustained: each slice comes behind untimed ones of the same call. The card's power limit then binds as
    that call makes it, not as the one before it did: behind a matrix product a slice has 0.87 to 0.93 of its
    best speed, behind cuDNN's backward 0.96 to 1.00 (H200, 2026-11-25).
    """
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        repeats[name] = max(2, int(SLICE_MS / time_of(call, 3)))
    times = {name: [] for name in calls}
    names = list(calls)
    for r in range(rounds):
        for name in order_of_round(names, r):
            torch.cuda.synchronize()
            time.sleep(pause)
            if sustained:
                time_of(calls[name], LEAD_SLICES * repeats[name])
            times[name].append(time_of(calls[name], repeats[name]))
    return times


def speed_ratio(times, name, others):
    """How many times as fast `name` is as the fastest of `others`: (ratio of medians, low, high).

    low and high enclose 95 % of the ratios that rounds drawn from those measured would give (drawn
    with repetition, and for all calls alike). The seed is fixed: the same times, the same interval.
    """
    names = (name, *others)

    def ratio(rounds):
        median = {n: statistics.median([times[n][i] for i in rounds]) for n in names}
        return min(median[n] for n in others) / median[name]

    count, generator = len(times[name]), random.Random(1)
    ratios = sorted(ratio(generator.choices(range(count), k=count)) for _ in range(RESAMPLES))
    return ratio(range(count)), ratios[RESAMPLES // 40], ratios[-RESAMPLES // 40 - 1]


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def table(titles, rows):
    """A table in Markdown; cells are text already."""
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(titles), *lines[1:]])
