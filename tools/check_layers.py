#!/usr/bin/env python3
"""Checks the house rules that a machine can check: who may include whom, and what stays where.

check_layers.py [ROOT]        lists every violation as file:line: rule; exit 1 if there is one
check_layers.py --self-test   plants one violation of every rule and expects it to be found

The rules are those of CONTRIBUTING.md and docs/architecture.md.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

MAX_LINES = 700
CODE = {".h", ".cc", ".cu", ".cuh", ".c", ".S", ".in"}
TEXT = CODE | {".py", ".sh", ".cmake", ".txt", ".md", ".yml", ".json"}

TRAITS = r"kernels/(\w+/)*(traits|layout)\.h"
TRAITS_MATH = r"kernels/(\w+/)*(traits|\w+_math)\.h"
TRAITS_PARAMS = r"kernels/(\w+/)*(traits|params)\.h"

# Room -> what it may include beside itself: a room's name, or a pattern of files.
ROOMS = {
    "core": [],
    "emulator": ["core", "ptxemu"],
    "problem": ["core"],
    "kernels": [],
    "plan": ["core", "problem", TRAITS],
    "jit": ["core"],
    "device": ["core", "ptxemu"],
    "cpu": ["core", "problem", "plan", TRAITS_MATH],
    "attention": ["core", "problem", "plan", "jit", "device", "cpu", TRAITS_PARAMS],
    "distributed": ["core", "problem", "plan", "device", "cpu", "attention"],
    "verify": ["core", "problem"],
    "capi": ["core", "problem", "plan", "jit", "device", "cpu", "attention", "distributed", "verify", "fa4", TRAITS_PARAMS],
}

# Folder of src/kernels -> the folders of it that it may include beside itself.
KERNELS = {
    "base": [],
    "ptx": ["base"],
    "tile": ["base", "ptx"],
    "forward": ["base", "ptx"],
    "geometry": ["base", "ptx", "tile", "forward"],
    "pages": ["base", "ptx", "tile", "forward"],
    "softmax": ["base", "ptx", "tile"],
    "scores": ["base", "ptx", "tile", "geometry"],
    "output": ["base", "ptx", "tile", "forward", "geometry", "softmax"],
    "append": ["base", "ptx", "tile", "forward", "pages"],
    "sums": ["base", "ptx", "tile"],
    "sequences": ["base", "ptx"],
    "backward": ["base", "ptx", "tile", "forward", "geometry"],
    "mma": ["base", "ptx", "tile", "forward", "geometry", "pages", "softmax", "scores", "output"],
    "sm90": ["base", "ptx", "tile", "forward", "geometry", "pages", "softmax", "scores", "output", "backward"],
    "sm100": ["base", "ptx", "tile", "forward", "geometry", "pages", "softmax", "scores", "output", "backward"],
}

# Folder of src/emulator -> what of it it may include beside itself: a folder, or a pattern of files. Handlers know the
# machine; the machine knows an instruction as decoded, and of those who watch it what they are told and what they tell.
EMULATOR = {
    "parse": [],
    "isa": ["parse", "machine"],
    "machine": [r"parse/types\.h", r"isa/(code|insn|target)\.h", r"observe/(observer|finding|line_counts|trace|waiters|hazards)\.h"],
    "observe": [r"isa/(code|insn)\.h", "machine"],
}

# (what, pattern, folders it is looked for in, folders where it may stand, said when found)
LIBRARY = ("src/", "include/")
PRODUCT = ("src/", "include/", "cli/")
ALL_CODE = ("src/", "include/", "cli/", "tests/", "bench/", "examples/", "tools/")
WORDS = [
    ("asm", r"\b(__)?asm(__)?(\s+(volatile|goto|__volatile__))*\s*\(", ALL_CODE, ("src/kernels/ptx/",),
     "raw asm only in src/kernels/ptx"),
    ("getenv", r"\b(secure_)?getenv\b", PRODUCT, ("src/core/",), "getenv only in src/core"),
    ("driver", r"\bcu[A-Z][a-z]\w*", LIBRARY, ("src/device/cuda/",), "driver calls only in src/device/cuda"),
    ("nvrtc", r"\bnvrtc[A-Z]\w*", LIBRARY, ("src/jit/",), "NVRTC calls only in src/jit"),
    ("nccl", r"\bnccl[A-Z]\w*", LIBRARY, ("src/distributed/",), "NCCL calls only in src/distributed"),
    ("cuda header", r'#\s*include\s*[<"](cuda\w*|nvrtc|cute?/\S*|cutlass/\S*)(\.h|\.hpp)?[>"]', ALL_CODE, (),
     "no CUDA header: driver_api.h and nvrtc_api.h declare what is used"),
    ("print", r"\b(printf|fprintf|puts|fputs|perror)\s*\(|\bstd::(cout|cerr|clog)\b|\bfmt::print\b", LIBRARY, (),
     "the library never prints"),
    ("abort", r"\b(abort|_exit|quick_exit|exit|assert)\s*\(", LIBRARY, ("src/kernels/",), "the library never aborts"),
    ("if 0", r"^\s*#\s*if\s+0\b", ALL_CODE, (), "no code switched off with the preprocessor"),
    ("to do", r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", ALL_CODE + ("cmake/", "docs/", ".ci/"), (), "no note of work to come: an issue says it"),
]
IN_COMMENTS = {"to do"}


def files_of(root):
    """Tracked files and those that could be; every file where there is no git."""
    git = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=False)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    return sorted(name for name in names if pathlib.Path(name).suffix in TEXT and (root / name).is_file())


def without_comments(text):
    """C and C++ comments blanked, line breaks and strings kept."""
    def blank(match):
        return match.group(0) if match.group(0)[0] in "\"'" else re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', blank, text, flags=re.S)


def included(root, name, path):
    """The included file's path below src/ (or include/); None for a system header or one of its own folder."""
    for base in (root / name).parent, root / "src", root / "include":
        target = (base / path).resolve()
        for top in root / "src", root / "include":
            if target.is_file() and target.is_relative_to(top.resolve()):
                return target.relative_to(top.resolve()).as_posix()
    return None


def matches(path, rules):
    """True where a rule is the path's first folder, or a pattern of the whole path."""
    return any(path.split("/")[0] == rule or re.fullmatch(rule, path) for rule in rules)


def include_errors(root, name, code):
    parts = pathlib.Path(name).parts
    room = parts[1] if parts[0] == "src" else parts[0]
    if parts[0] == "src" and room not in ROOMS:
        yield 1, f"src/{room} is not a room; rooms: {', '.join(ROOMS)}"
        return
    for number, line in enumerate(code.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not match:
            continue
        target = included(root, name, match.group(1))
        if target is None:
            continue
        if parts[0] == "include":
            if target.split("/")[0] != parts[1]:
                yield number, f"a public header includes {target}; only {parts[1]}/ is installed with it"
            continue
        if room == "kernels" and target.startswith("kernels/"):
            folder, other = parts[2], target.split("/")[1]
            if folder not in KERNELS:
                yield number, f"src/kernels/{folder} is no folder of the kernels; folders: {', '.join(KERNELS)}"
            elif other != folder and other not in KERNELS[folder]:
                yield number, f"kernels/{folder} may not include {target}; allowed: {', '.join([folder] + KERNELS[folder])}"
            continue
        if room == "emulator" and len(parts) > 3 and re.match(r"emulator/\w+/", target):
            folder, path = parts[2], target.split("/", 1)[1]
            if folder not in EMULATOR:
                yield number, f"src/emulator/{folder} is no folder of the emulator; folders: {', '.join(EMULATOR)}"
            elif not matches(path, [folder] + EMULATOR[folder]):
                yield number, f"emulator/{folder} may not include {path}; allowed: {', '.join([folder] + EMULATOR[folder])}"
            continue
        allowed = [room] + ROOMS[room]
        if not matches(target, allowed):
            yield number, f"{room} may not include {target}; allowed: {', '.join(allowed)}"


def violations(root):
    for name in files_of(root):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        if len(text.splitlines()) > MAX_LINES and not name.startswith("examples/data/"):
            yield name, MAX_LINES + 1, f"{len(text.splitlines())} lines; at most {MAX_LINES}"
        is_code = pathlib.Path(name).suffix in CODE
        code = without_comments(text) if is_code else text
        if is_code and name.startswith(LIBRARY):
            for number, message in include_errors(root, name, code):
                yield name, number, message
        for what, pattern, folders, exempt, message in WORDS:
            if not name.startswith(folders) or name.startswith(exempt):
                continue
            if not is_code and what not in IN_COMMENTS:
                continue
            for number, line in enumerate((text if what in IN_COMMENTS else code).splitlines(), 1):
                if re.search(pattern, line):
                    yield name, number, message


PLANTED = [  # file, its content, what the report must say; None: nothing
    ("src/core/good.h", '// asm("x"); getenv\n#include <string>\n', None),
    ("src/plan/good.cc", '#include "core/good.h"\n#include "kernels/sm90/forward/traits.h"\n#include "kernels/sm90/forward/layout.h"\n', None),
    ("src/kernels/sm90/forward/traits.h", "#pragma once\n", None),
    ("src/kernels/sm90/forward/layout.h", "#pragma once\n", None),
    ("src/kernels/forward/params.h", "#pragma once\n", None),
    ("src/kernels/ptx/good.cuh", 'inline void f() { asm volatile("nop;"); }\n', None),
    ("src/core/config.cc", 'auto* x = getenv("FA4_LOG");\n', None),
    ("src/device/cuda/driver.cc", 'auto* f = symbol("cuInit");\n', None),
    ("include/fa4/fa4.h", "#pragma once\n", None),
    ("src/capi/good.cc", '#include "fa4/fa4.h"\n#include "core/good.h"\n', None),
    ("include/ptxemu/machine.h", "#pragma once\n", None),
    ("src/emulator/machine/good.cc", '#include "ptxemu/machine.h"\n#include "core/good.h"\n', None),
    ("src/emulator/isa/up.cc", '#include "plan/good.cc"\n', "emulator may not include plan/good.cc"),
    ("src/emulator/parse/ast.h", "#pragma once\n", None),
    ("src/emulator/isa/insn.h", '#include "emulator/parse/ast.h"\n', None),
    ("src/emulator/isa/decoder.h", "#pragma once\n", None),
    ("src/emulator/machine/exec.h", '#include "emulator/isa/insn.h"\n', None),
    ("src/emulator/isa/alu.cc", '#include "emulator/machine/exec.h"\n', None),
    ("src/emulator/parse/up.cc", '#include "emulator/isa/insn.h"\n', "emulator/parse may not include isa/insn.h"),
    ("src/emulator/machine/up.cc", '#include "emulator/isa/decoder.h"\n', "emulator/machine may not include isa/decoder.h"),
    ("src/emulator/observe/up.cc", '#include "emulator/parse/ast.h"\n', "emulator/observe may not include parse/ast.h"),
    ("src/emulator/attic/a.cc", '#include "emulator/isa/insn.h"\n', "src/emulator/attic is no folder of the emulator"),
    ("src/core/up.cc", '#include "plan/good.cc"\n', "core may not include plan/good.cc"),
    ("src/jit/attention.cc", '#include "kernels/sm90/forward/traits.h"\n', "jit may not include kernels"),
    ("src/plan/params.cc", '#include "kernels/forward/params.h"\n', "plan may not include kernels"),
    ("src/kernels/base/down.h", "#pragma once\n", None),
    ("src/kernels/ptx/down.cuh", '#include "kernels/base/down.h"\n', None),
    ("src/kernels/base/up.h", '#include "kernels/ptx/down.cuh"\n', "kernels/base may not include kernels/ptx/down.cuh"),
    ("src/kernels/scores/across.cuh", '#include "kernels/sm90/forward/traits.h"\n', "kernels/scores may not include kernels/sm90"),
    ("src/kernels/attic/a.cuh", '#include "kernels/base/down.h"\n', "src/kernels/attic is no folder of the kernels"),
    ("src/kernels/sm90/host.cuh", '#include "../../core/good.h"\n', "kernels may not include core/good.h"),
    ("src/lounge/a.cc", "int a;\n", "src/lounge is not a room"),
    ("include/fa4/leak.h", '#include "../../src/core/good.h"\n', "a public header includes core/good.h"),
    ("src/cpu/raw.cc", 'void f() { asm volatile ("nop"); }\n', "raw asm only"),
    ("bench/raw.cu", 'void f() { asm volatile("nop;"); }\n', "raw asm only"),
    ("src/cpu/env.cc", 'auto* x = std::getenv("HOME");\n', "getenv only"),
    ("src/attention/call.cc", "auto r = cuLaunchKernel(f);\n", "driver calls only"),
    ("src/device/cuda/rtc.cc", "auto r = nvrtcCompileProgram(p);\n", "NVRTC calls only"),
    ("src/device/nccl.cc", "auto r = ncclGroupStart();\n", "NCCL calls only"),
    ("cli/cuda.cc", "#include <cuda_bf16.h>\n", "no CUDA header"),
    ("src/core/talk.cc", 'void f() { std::printf("x"); }\n', "never prints"),
    ("src/core/die.cc", "void f() { std::abort(); }\n", "never aborts"),
    ("cli/off.cc", "# if 0\n#endif\n", "switched off"),
    ("tests/later.cc", "// TO" "DO: more\n", "work to come"),
    ("cli/long.cc", "int a;\n" * (MAX_LINES + 1), "701 lines"),
]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        found = list(violations(root))
        wrong = []
        for name, _, expected in PLANTED:
            messages = [message for file, _, message in found if file == name]
            if expected is None and messages:
                wrong.append(f"{name}: reported without reason: {messages}")
            if expected is not None and not any(expected in message for message in messages):
                wrong.append(f"{name}: not reported: {expected}; said {messages}")
        for line in wrong:
            print(f"check_layers: {line}")
        print(f"check_layers: self-test, {len(PLANTED)} planted files, {len(wrong)} wrong")
        return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    found = list(violations(root))
    for name, number, message in found:
        print(f"{name}:{number}: {message}")
    print(f"check_layers: {len(files_of(root))} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
