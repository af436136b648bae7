#!/usr/bin/env python3
"""Attention over several GPUs: fa4cpp's methods beside one GPU and PyTorch's own context parallelism, interleaved in one run.

    python3 bench/context_parallel.py [--ranks N] [--rows "B,S,HQ,HKV,D,CAUSAL[,WINDOW] ..."] [--methods all_to_all,all_gather,ring]
        [--peers "torch cuDNN,torch flash,torch cuDNN copied heads"|none] [--rounds 5] [--seconds 240] [--device cuda|cpu] [--markdown F] [--json F]
    torchrun --nproc-per-node N bench/context_parallel.py ...

"all_gather:N" among the methods takes key heads in N slices, in place of fa4cpp's own number. WINDOW is how many keys before a query it sees, and without
CAUSAL as many behind it; -1: all. S tokens in all are cut over the ranks in zigzag. Before anything is timed, out, dq, dk and dv of each rank are compared with
those of one GPU over the whole sequence: no 128 rows of a head differ by more than 1/32 of their size. A wrong result is named and makes the exit status 1; a
method or a peer that fails is named and left out.

A figure is the median of rounds, in TFLOP/s a GPU, of the slowest rank; "one GPU" is fa4cpp over the whole sequence, which all GPUs compute at once, each for
itself. Behind each figure stands its share of the ideal, one GPU's time divided by the number of ranks. The backward is 2.5 times the forward's FLOPs.

--seconds ends the run, whatever hangs: rows that are done have been printed and written by then. On CPUs (--device cpu) it is a trial of itself, not of speed.
"""
import argparse
import datetime
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import problems
from interleaved import order_of_round, reason_of, table

import torch
import torch.distributed as dist

DIRECTIONS, ONE = ("forward", "backward"), "one GPU"
ROWS = {"cuda": "1,32768,64,8,128,1 1,65536,64,8,128,1 1,32768,32,32,128,1 1,32768,64,8,128,0", "cpu": "2,256,4,2,32,1 1,256,4,4,32,0"}
SLICE_MS = 50


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, help="default: a process a GPU; on CPUs 2")
    parser.add_argument("--rows", metavar="'B,S,HQ,HKV,D,CAUSAL[,WINDOW] ...'")
    parser.add_argument("--methods", default="all_to_all,all_gather,ring")
    parser.add_argument("--peers", help="names with commas, or none (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("fa4cpp") is None:
        parser.error("fa4cpp is not installed; accepted: its wheel, or PYTHONPATH=python with FA4CPP_LIBRARY=.../libfa4.so.0")
    options.ranks = options.ranks or (torch.cuda.device_count() if options.device == "cuda" else 2)
    if options.ranks < 1 or options.rounds < 1 or options.seconds <= 0:
        parser.error(f"--ranks {options.ranks} --rounds {options.rounds} --seconds {options.seconds}: accepted: 1 or more of each, and a GPU")
    try:
        options.problems = [row_of(text) for text in (options.rows or ROWS[options.device]).split()]
    except ValueError as problem:
        parser.error(f"--rows {options.rows}: {problem}; accepted: whole numbers B,S,HQ,HKV,D,CAUSAL[,WINDOW] a row")
    return options


def row_of(text):
    batch, seqlen, heads_q, heads_kv, head_dim, causal, window = map(int, (text if text.count(",") > 5 else text + ",-1").split(","))
    return problems.Row(batch, seqlen, seqlen, heads_q, heads_kv, head_dim, head_dim, bool(causal), window)


def launch(options):
    """Starts a process for each rank and waits; the largest exit status."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = []
    for rank in range(options.ranks):
        place = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place}, stdin=subprocess.DEVNULL))
    end, statuses = time.monotonic() + options.seconds + 30, []
    for process in ranks:
        try:
            statuses.append(process.wait(max(1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            statuses.append(process.wait())
    return max((abs(status) for status in statuses), default=0)


class Bench:
    """One rank."""

    def __init__(self, options):
        self.options, self.rank, self.size = options, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.end = time.monotonic() + options.seconds
        guard = threading.Timer(options.seconds + 10, self.give_up)
        guard.daemon = True
        guard.start()
        self.device = torch.device("cpu") if options.device == "cpu" else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend, more = ("gloo", {}) if self.device.type == "cpu" else ("nccl", {"device_id": self.device})
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=options.seconds), **more)
        import context_parallel_calls as calls  # and fa4cpp, behind the choice of the GPU

        self.calls = calls
        self.rows = []

    def give_up(self):
        print(f"rank {self.rank}: {self.options.seconds:g} seconds (--seconds) are over and a call has not come back; what was measured is above", flush=True)
        os._exit(3)

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def variants(self):
        """{name: a function of a row and its inputs that makes a Call}"""
        made = {method: self.calls.ours(method) for method in self.options.methods.split(",") if method}
        asked = self.options.peers
        for name, kind in self.calls.BACKENDS.items() if asked != "none" else ():
            if asked is None or name in asked.split(","):
                try:
                    made[name] = self.calls.torchs(*kind, self.device, self.size)
                except Exception as problem:
                    self.say(f"without {name}: {reason_of(problem)}")
        return made

    def is_over(self):
        return self.calls.agreed(time.monotonic() > self.end, self.device) > 0

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def checked(self, make, row, x, truth):
        """(Call or None, what is wrong or None, why it is left out or None), the same on every rank."""
        call = share = why = None
        try:
            call = make(row, x)
            results = [call.prepare().detach(), *call.backward()]
            call.forward()
            self.synchronize()
            shares = [0.0] if truth is None else [self.calls.worst_block(*pair) for pair in zip(results, truth)]
            share = max(shares)
            wrong = ", ".join(f"{name} {each:.3g}" for name, each in zip(self.calls.NAMES, shares) if each > 1)
        except Exception as problem:
            why = reason_of(problem)
        if self.calls.agreed(why is not None, self.device):
            return None, None, why or "it failed on another rank"
        worst = self.calls.agreed(share, self.device)
        return call, (f"{wrong or 'on another rank'} of what may differ (worst {worst:.3g})" if worst > 1 else None), None

    def slice_of(self, call, repeats):
        """Milliseconds of a call, the mean of `repeats` in a row, which begin on all ranks together."""
        dist.barrier()
        self.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        self.synchronize()
        return (time.perf_counter() - start) * 1e3 / repeats

    def interleave(self, calls):
        """Milliseconds of each call in each round, of the slowest rank."""
        repeats = {name: max(2, int(SLICE_MS / self.calls.agreed(self.slice_of(call, 1), self.device))) for name, call in calls.items()}
        names, times = list(calls), {name: [] for name in calls}
        for number in range(self.options.rounds):
            for name in order_of_round(names, number):
                times[name].append(self.calls.agreed(self.slice_of(calls[name], repeats[name]), self.device))
            if self.is_over():
                break
        return times

    def measure(self, row, variants):
        x = self.calls.Inputs(row, self.rank, self.size, self.device)
        made, wrong, refused = {}, {}, {}
        truth = self.calls.truth_of(row, x, self.rank)
        fits = not self.calls.agreed(truth is None, self.device)
        for name, make in variants.items():
            call, found, why = self.checked(make, row, x, truth if fits else None)
            made |= {} if call is None else {name: call}
            wrong |= {} if found is None else {name: found}
            refused |= {} if why is None else {name: why}
            self.say(f"  {name}: {found or why or ('as one GPU' if fits else 'not compared: one GPU has no room for the whole')}")
        del truth
        if fits:
            made[ONE] = self.calls.one_gpu(row, x)
            made[ONE].prepare()
        times = self.interleave({(name, direction): getattr(call, direction) for name, call in made.items() for direction in DIRECTIONS})
        result = dict(row._asdict(), mask=row.mask(), ranks=self.size, wrong=wrong, refused=refused, directions={})
        for direction, factor in zip(DIRECTIONS, (1, 2.5)):
            flops = factor * row.forward_flops()
            medians = {name: statistics.median(times[name, direction]) for name in made}
            speeds = {name: flops / ms / 1e9 / (1 if name == ONE else self.size) for name, ms in medians.items()}
            result["directions"][direction] = {"ms": {name: times[name, direction] for name in made}, "tflops": speeds,
                                               "share": {name: speed / speeds[ONE] for name, speed in speeds.items() if ONE in speeds}}
        return result

    def save(self, names):
        titles, options = ["batch x seqlen", "heads q:kv", "d", "mask", "direction", ONE, *names], self.options
        text = table(titles, [line for row in self.rows for line in lines_of(row, names)])
        if options.markdown:
            with open(options.markdown, "w", encoding="utf-8") as file:
                file.write(f"TFLOP/s a GPU of {self.size}, in brackets the share of the ideal.\n\n{text}\n")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu", "torch": torch.__version__, "rows": self.rows},
                          file, indent=1)
        return text

    def run(self):
        """The exit status."""
        variants, failed = self.variants(), False
        for row in self.options.problems:
            if self.is_over():
                self.say(f"{self.options.seconds:g} seconds (--seconds) are over: without the rows that follow")
                break
            self.say(f"{row.batch} x {row.seqlen_q}, heads {row.heads_q}:{row.heads_kv}, d {row.head_dim}, {row.mask()}, {self.size} ranks")
            try:
                self.rows.append(self.measure(row, variants))
            except Exception as problem:
                print(f"rank {self.rank}: {reason_of(problem)}", flush=True)
                os._exit(2)  # the others wait for this one: they end with it, or at --seconds
            result = self.rows[-1]
            failed |= bool(result["wrong"]) or any(name in result["refused"] for name in self.options.methods.split(","))
            if self.rank == 0:
                for line in lines_of(result, variants):
                    self.say(f"  {line[4]}: " + "; ".join(f"{name} {cell}" for name, cell in zip((ONE, *variants), line[5:])))
                self.save(list(variants))
        if self.rank == 0:
            print(f"TFLOP/s a GPU of {self.size}, in brackets the share of the ideal.\n\n{self.save(list(variants))}")
        dist.destroy_process_group()
        return 1 if failed else 0


def lines_of(result, names):
    """Cells of a row, a line for each direction."""
    for direction, found in result["directions"].items():
        cells = [f"{found['tflops'][ONE]:.3g}" if ONE in found["tflops"] else "–"]
        for name in names:
            share = f" ({found['share'][name]:.1%})" if name in found["share"] else ""
            mark = ", wrong" if name in result["wrong"] else ""
            cells.append(f"{found['tflops'][name]:.3g}{share}{mark}" if name in found["tflops"] else "–")
        yield [f"{result['batch']} x {result['seqlen_q']}", f"{result['heads_q']}:{result['heads_kv']}", str(result["head_dim"]),
               result["mask"], direction, *cells]


if __name__ == "__main__":
    given = parse()
    sys.exit(Bench(given).run() if "RANK" in os.environ else launch(given))
