"""The sm_90a rows of tests/ptx/*.fixtures as a few modules of machine code, and an index of them."""

import collections
import json
import re
import subprocess

from .core import entry, preamble
from .hardware import read

ARCH = "sm_90a"
MOST = 200  # kernels a module; fewer where each run of one needs the module's variables anew
MOST_WITH_VARIABLES = 16


def runs_there(kernel, values):
    """Rows that end in a trap or print are left out: what they show is no bytes."""
    return values.get("arch", ARCH) == ARCH and values.get("status", "ok") == "ok" and "vprintf" not in kernel.body


def level(form):
    """ptxas 13.0 encodes a cp.async with a cache policy as no instruction of sm_90a unless it does not optimise."""
    return "-O0" if re.match(r"cp\.async\.c[ag]\..*cache_hint", form) else "-O3"


def chunks(path):
    """(text before the kernels, level of optimisation, [(where, kernel, values, form, want)]) of one file, rows of one such
    text together."""
    groups = collections.OrderedDict()
    for where, kernel, values, forms, want in read(path):
        if runs_there(kernel, values):
            for form in forms:
                groups.setdefault((kernel.parts(values, form)[0], level(form)), []).append((where, kernel, values, form, want))
    for (head, optimise), runs in groups.items():
        most = MOST_WITH_VARIABLES if head else MOST
        for first in range(0, len(runs), most):
            yield head, optimise, runs[first:first + most]


def assemble(text, optimise, stem):
    """What ptxas says where it fails. Sums and products stay apart, as the rows have them."""
    stem.with_suffix(".ptx").write_text(text)
    done = subprocess.run(["ptxas", f"-arch={ARCH}", optimise, "--fmad=false", str(stem.with_suffix(".ptx")), "-o", str(stem.with_suffix(".cubin"))],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        stem.with_suffix(".ptx").unlink()
    return done.stdout + done.stderr if done.returncode else ""


def pack(folder, paths):
    """FOLDER/index.json: a list of modules {"file", "fresh", "kernels": [[name, where, form, values, want]]}. A module that
    ptxas does not take stays PTX, for the driver to judge."""
    folder.mkdir(parents=True, exist_ok=True)
    index, count = [], 0
    for path in paths:
        for number, (head, optimise, runs) in enumerate(chunks(path)):
            stem = folder / f"{path.stem}_{number}"
            names = [f"k{i}" for i in range(len(runs))]
            text = preamble(ARCH, head) + "".join(entry(kernel, values, form, name) for name, (_, kernel, values, form, _) in zip(names, runs))
            why = assemble(text, optimise, stem)
            if why:
                print(f"{stem.name}: {why.strip().splitlines()[0]}")
            kept = [[name, where, form, {k: v for k, v in values.items() if k != "origin"}, want]
                    for name, (where, _, values, form, want) in zip(names, runs)]
            index.append({"file": stem.name + (".ptx" if why else ".cubin"), "fresh": bool(head), "kernels": kept})
            count += len(runs)
    (folder / "index.json").write_text(json.dumps(index))
    print(f"{count} kernels in {len(index)} modules")
