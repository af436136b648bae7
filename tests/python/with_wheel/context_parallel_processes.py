"""Starts the ranks of the tests of context parallelism, and gathers what they found.

By itself, where there is no pytest: context_parallel_processes.py cpu|cuda 2|4
"""

import json
import os
import subprocess
import sys
import tempfile

from context_parallel_ranks import CASES

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "context_parallel_ranks.py")
MINUTES = 10  # no more than a guard: what hangs ends


def _finished(process):
    """The exit status, or that there is none."""
    try:
        return process.wait(timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"none in {MINUTES} minutes"


def run_ranks(device, size):
    """{case: what was wrong} of all ranks; a case that a rank did not come to is wrong."""
    names = [case.__name__ for case in CASES[device]]
    found = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        reports, outputs, processes = [], [], []
        for rank in range(size):
            reports.append(os.path.join(folder, f"rank{rank}.json"))
            outputs.append(open(os.path.join(folder, f"rank{rank}.txt"), "w+", encoding="utf-8"))
            processes.append(subprocess.Popen([sys.executable, SCRIPT, device, str(rank), str(size), os.path.join(folder, "store"), reports[rank]],
                                              stdin=subprocess.DEVNULL, stdout=outputs[rank], stderr=subprocess.STDOUT))
        for rank, status in enumerate([_finished(process) for process in processes]):
            ran = {}
            if os.path.exists(reports[rank]):
                with open(reports[rank], encoding="utf-8") as file:
                    ran = json.load(file)
            for name, wrong in found.items():
                wrong += ran.get(name, [f"rank {rank} did not come to it (status {status})"])
            outputs[rank].seek(0)
            if status:
                found[names[0]].append(f"rank {rank} ended with status {status}: {outputs[rank].read()[-2000:]}")
            outputs[rank].close()
    return found


def main(device, size):
    """The exit status."""
    found = run_ranks(device, size)
    for name, wrong in found.items():
        print(name, "passed" if not wrong else "\n  ".join(["FAILED", *wrong]))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
