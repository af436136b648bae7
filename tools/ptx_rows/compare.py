"""Runs what `pack` made on the GPU of this machine. Each of a few processes takes a module at a time; one that dies or hangs
costs the kernel that it was running, and another process goes on with the next."""

import argparse
import base64
import json
import multiprocessing
import pathlib
import queue
import threading
import time
import zlib

from .core import describe
from .hardware import Driver, run

FIRST = ("wgmma", "mma", "matrices", "mbarriers", "barriers", "warp", "control", "special")
LAST = ("async_copies", "tensor_loads", "tensor_stores")  # what is most likely to end a context
PATIENCE = 8  # failures in a row after which the rest of a file is left

KERNEL_FAILED = 700  # from here to 799 the driver's errors end the context


def run_one(driver, image, handle, kernel):
    """(whether the process is still of use, words that the kernel wrote or None, bytes or why). Without a handle the module
    is loaded for this kernel alone."""
    try:
        mine = handle or driver.load(image)
        written = run(driver, driver.function(mine, kernel[0]), kernel[3])
        if handle is None:
            driver.call("cuModuleUnload", mine)
        return True, describe(written), written
    except RuntimeError as error:
        return not KERNEL_FAILED <= int(str(error).split()[-1]) < 800, None, str(error)


def work(folder, connection):
    """Takes (module, indices of kernels) and sends what run_one gives of each."""
    driver = Driver()
    while True:
        module, wanted = connection.recv()
        image = (folder / module["file"]).read_bytes()
        handle = None if module["fresh"] else loaded(driver, image)
        for i in wanted:
            connection.send(run_one(driver, image, handle, module["kernels"][i]))
        if handle is not None:
            driver.lib.cuModuleUnload(handle)


def loaded(driver, image):
    try:
        return driver.load(image)
    except RuntimeError:
        return None  # each kernel then says why


def guarded(folder, connection):
    try:
        work(folder, connection)
    except (RuntimeError, OSError) as error:
        connection.send((False, None, str(error)))


def family_of(module):
    return module["file"].rsplit("_", 1)[0]


class Crew:
    """Threads with a process each, and what they found: [where, form, "same" | "differs" | "failed", detail]."""

    def __init__(self, folder, options, done, out):
        self.folder, self.options, self.done, self.out = folder, options, done, out
        self.until = time.monotonic() + options.seconds
        self.lock, self.tasks, self.counts = threading.Lock(), queue.Queue(), {"same": 0, "differs": 0, "failed": 0, "left": 0}
        self.failures = {}  # of each file, in a row

    def record(self, module, i, words, detail):
        _, where, form, _, want = module["kernels"][i]
        fate = "failed" if words is None else "same" if words == want else "differs"
        line = [where, form, fate]
        if fate == "failed":
            line.append(detail)
        elif fate == "differs":
            line += [want, words, base64.b64encode(zlib.compress(detail)).decode()]
        with self.lock:
            self.counts[fate] += 1
            self.failures[family_of(module)] = self.failures.get(family_of(module), 0) + 1 if fate == "failed" else 0
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()

    def attempt(self, worker, module, wanted):
        """Runs kernels until all are done or the process is of no more use: (the ones that are left, whether it is of use)."""
        process, connection = worker
        try:
            connection.send((module, wanted))
            while wanted:
                if not connection.poll(self.options.patience):
                    self.record(module, wanted[0], None, "hangs")
                    return wanted[1:], False
                alive, words, detail = connection.recv()
                self.record(module, wanted[0], words, detail)
                wanted = wanted[1:]
                if not alive:
                    return wanted, False
        except (EOFError, OSError):
            self.record(module, wanted[0], None, f"the process ended with {process.exitcode}")
            return wanted[1:], False
        return wanted, True

    def hire(self):
        context = multiprocessing.get_context("spawn")
        mine, other = context.Pipe()
        process = context.Process(target=guarded, args=(self.folder, other), daemon=True)
        process.start()
        other.close()
        return process, mine

    @staticmethod
    def dismiss(worker):
        worker[0].kill()
        worker[0].join()
        worker[1].close()

    def serve(self):
        worker = None
        while True:
            try:
                module = self.tasks.get_nowait()
            except queue.Empty:
                break
            wanted = [i for i, k in enumerate(module["kernels"]) if (k[1], k[2]) not in self.done]
            while wanted:
                if time.monotonic() > self.until or self.failures.get(family_of(module), 0) >= PATIENCE:
                    with self.lock:
                        self.counts["left"] += len(wanted)
                    break
                worker = worker or self.hire()
                wanted, of_use = self.attempt(worker, module, wanted)
                if not of_use:
                    self.dismiss(worker)
                    worker = None
        if worker:
            self.dismiss(worker)

    def go(self, index):
        rank = {name: i for i, name in enumerate((*FIRST, "", *LAST))}
        for module in sorted(index, key=lambda m: rank.get(family_of(m), rank[""])):
            self.tasks.put(module)
        threads = [threading.Thread(target=self.serve) for _ in range(self.options.processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def arguments(words):
    parser = argparse.ArgumentParser(prog="ptx_fixtures.py check")
    parser.add_argument("folder", type=pathlib.Path, help="what pack made")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=600, help="no new work after so long")
    parser.add_argument("--patience", type=float, default=20, help="seconds after which a kernel hangs")
    parser.add_argument("--results", type=pathlib.Path, default="ptx_fixtures.jsonl",
                        help="a line a kernel is added: [where, form, same|differs|failed, ...]; those there already are not run again")
    return parser.parse_args(words)


def main(words):
    options = arguments(words)
    done = set()
    if options.results.exists():
        done = {tuple(json.loads(line)[:2]) for line in options.results.read_text().splitlines()}
    with options.results.open("a") as out:
        crew = Crew(options.folder, options, done, out)
        crew.go(json.loads((options.folder / "index.json").read_text()))
    bad = [json.loads(line) for line in options.results.read_text().splitlines()]
    bad = [line for line in bad if line[2] != "same"]
    for line in bad:
        print(f"{line[0]}: {line[1]}: {line[3]}" if line[2] == "failed" else f"{line[0]}: {line[1]}\n  want {line[3]}\n  got  {line[4]}")
    counts = crew.counts
    print(f"{len(done)} were done before; {counts['same']} agree, {counts['differs']} differ, {counts['failed']} failed, {counts['left']} were not run")
    return bool(bad or counts["left"])
