"""Where machine code and counts come from: ptxas, nvdisasm and ptxemu, each by name or from its PyPI package."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from . import sass


class InputError(Exception):
    """What is wrong and what is accepted, in one line."""


def tool(name, given=None):
    """A command: as given, in the environment (PTXAS, NVDISASM, PTXEMU), on the PATH, or from nvidia-cuda-* of PyPI."""
    for candidate in (given, os.environ.get(name.upper())):
        if candidate:
            return candidate
    if found := shutil.which(name):
        return found
    for folder in map(pathlib.Path, sys.path):
        for path in sorted(folder.glob(f"nvidia/*/bin/{name}")):
            return str(path)
    raise InputError(f"{name}: not found; accepted: --{name} FILE, {name.upper()} in the environment, a folder of PATH, "
                     f"or a PyPI package that has it (nvidia-cuda-nvdisasm, nvidia-cuda-nvcc)")


def run(command):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}; accepted: a command that runs") from error
    if done.returncode != 0:
        raise InputError(f"{command[0]} failed with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def listing_of_cubin(cubin, nvdisasm=None):
    return run([tool("nvdisasm", nvdisasm), "-c", "-gp", cubin])


def listing_of_ptx(ptx, ptxas=None, nvdisasm=None, arch=None):
    text = pathlib.Path(ptx).read_text(errors="replace")
    target = arch or (re.search(r"^\s*\.target\s+(\w+)", text, re.M) or [None, None])[1]
    if not target:
        raise InputError(f"{ptx}: has no .target; accepted: PTX text")
    with tempfile.TemporaryDirectory() as folder:
        cubin, source = pathlib.Path(folder) / "kernel.cubin", pathlib.Path(folder) / "kernel.ptx"
        source.write_text(text.rstrip("\0"))   # NVRTC ends its PTX with a byte that ptxas does not take
        run([tool("ptxas", ptxas), f"-arch={target}", "--generate-line-info", source, "-o", cubin])
        return listing_of_cubin(cubin, nvdisasm)


def listing(file, ptx=None, ptxas=None, nvdisasm=None):
    """The listing of a .sass, .ptx or .cubin file; with PTX, one that names its lines."""
    path = pathlib.Path(file)
    if not path.is_file():
        raise InputError(f"{file}: is not a file; accepted: F.cubin, F.ptx or F.sass (nvdisasm -c -gp)")
    if path.suffix == ".sass":
        return path.read_text()
    if path.suffix == ".ptx":
        return listing_of_ptx(path, ptxas, nvdisasm)
    text = listing_of_cubin(path, nvdisasm)
    if ptx is None or sass.LINE.search(text, re.M) or "//## File" in text:
        return text
    lined = listing_of_ptx(ptx, ptxas, nvdisasm)
    if opcodes(text) != opcodes(lined):
        raise InputError(f"--ptx {ptx}: ptxas makes other instructions of it than {file} has; accepted: the PTX of the "
                         "cubin, and --ptxas of the same release")
    return lined


def opcodes(text):
    return {name: [i.opcode for i in f.code] for name, f in sass.parse(text).items()}


def choose(functions, kernel):
    if kernel:
        names = [n for n in functions if kernel in n]
    else:
        names = sorted(functions, key=lambda n: -len(functions[n].code))[:1]
    if len(names) != 1:
        raise InputError(f"--kernel {kernel}: {len(names)} functions; accepted: a part of one name of {', '.join(sorted(functions))}")
    return functions[names[0]]


def counts_of_launch(launch, ptx, ptxemu=None):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "counts.json"
        command = [tool("ptxemu", ptxemu), "run"] + ([ptx] if ptx else [])
        run(command + ["--launch", launch, "--counts", file])
        return read_counts(file)


def read_counts(file):
    """PTX line counts by warp of the busiest CTA of the last launch."""
    try:
        launch = json.loads(pathlib.Path(file).read_text())["launches"][-1]
        ctas = {}
        for warp in launch["warps"]:
            ctas.setdefault(tuple(warp["cta"]), {})[warp["warp"]] = {line: times for line, times in warp["lines"]}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{file}: {error}; accepted: what ptxemu run --counts writes") from error
    if not ctas:
        raise InputError(f"{file}: no warp came to its end; accepted: counts of a launch that did")
    return max(ctas.values(), key=lambda warps: sum(sum(lines.values()) for lines in warps.values()))
