"""Builds the wheel and the sdist of fa4cpp (PEP 517) with CMake and Python's standard library.

Options are environment variables:
  FA4CPP_PREBUILD=0   without GPU kernels in the library: they are compiled on first use
  FA4CPP_BUILD_DIR    where CMake builds, as it is when it was configured before; default: build/wheel in the sources
  FA4_NVRTC           the libnvrtc.so.13 to compile the kernels with; default: PyPI's nvidia-cuda-nvrtc
"""

import base64
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
NVRTC = "nvidia-cuda-nvrtc==13.0.88"
SUMMARY = "Exact attention for numpy, torch and DLPack arrays, on the CPU and on GPUs"
# What a build reads; the rest of the repository stays out of an sdist.
SOURCES = ("CMakeLists.txt", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "cmake", "include", "python", "src", "tools")
ENTRY_POINTS = ("[vllm.general_plugins]\nfa4cpp = fa4cpp.integrations.vllm:register\n"
                "[sglang.srt.plugins]\nfa4cpp = fa4cpp.integrations.sglang:register\n")
LEFT_OUT = {"__pycache__", "build", "dist"}


def _version():
    return re.search(r"project\(fa4 VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)


def _metadata():
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    lines = ["Metadata-Version: 2.1", "Name: fa4cpp", f"Version: {_version()}", f"Summary: {SUMMARY}",
             "License: BSD-3-Clause", "Requires-Python: >=3.10", "Classifier: Operating System :: POSIX :: Linux",
             "Classifier: Programming Language :: Python :: 3", "Provides-Extra: torch",
             'Requires-Dist: torch>=2.4; extra == "torch"', "Provides-Extra: nvrtc",
             'Requires-Dist: nvidia-cuda-nvrtc<14,>=13; extra == "nvrtc"', "Description-Content-Type: text/markdown", "", readme]
    return "\n".join(lines)


def _wants_kernels():
    return os.environ.get("FA4CPP_PREBUILD", "1") != "0"


def get_requires_for_build_wheel(config_settings=None):
    needs = []
    if _wants_kernels() and not os.environ.get("FA4_NVRTC") and not os.environ.get("FA4CPP_BUILD_DIR"):
        needs.append(NVRTC)
    if shutil.which("cmake") is None:
        needs.append("cmake>=3.25")
    if shutil.which("ninja") is None:
        needs.append("ninja")
    return needs


def get_requires_for_build_sdist(config_settings=None):
    return []


def _refuse(text):
    raise SystemExit(f"fa4cpp: {text}")


def _check_tools():
    """One line for what a build lacks, before CMake says it in a hundred."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        _refuse(f"{sys.platform} {os.uname().machine}; accepted: Linux on x86-64")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        _refuse("no C++ compiler; Debian's and Ubuntu's package is g++ (12 or newer); tools/setup.sh installs it")
    if shutil.which((compiler.split() or [""])[0]) is None:
        _refuse(f"CXX={compiler}: there is no such program; accepted: a C++ compiler (Debian's package is g++, 12 or newer)")
    headers = {"fmt/format.h": "libfmt-dev", "xxhash.h": "libxxhash-dev", "zstd.h": "libzstd-dev"}
    missing = [package for header, package in headers.items() if subprocess.run(
        [*compiler.split(), "-xc++", "-E", "-"], input=f"#include <{header}>\n", capture_output=True, text=True, check=False).returncode]
    if missing:
        _refuse(f"headers are missing; Debian's and Ubuntu's packages: {' '.join(missing)}; tools/setup.sh installs them")


def _nvrtc():
    """The libnvrtc of the build environment."""
    for folder in sys.path:
        path = pathlib.Path(folder or ".") / "nvidia/cu13/lib/libnvrtc.so.13"
        if path.is_file():
            return path
    return None


def _run(*command):
    print("+", *command, flush=True)
    if subprocess.run([str(part) for part in command], check=False).returncode:
        _refuse(f"{command[0]} {command[1]} failed; its words are above")


def _build(prefix):
    """Builds the libraries and installs them below `prefix`."""
    _check_tools()
    given = os.environ.get("FA4CPP_BUILD_DIR")
    build = pathlib.Path(given or ROOT / "build/wheel").absolute()
    if not given or not (build / "CMakeCache.txt").is_file():
        _configure(build)
    _run("cmake", "--build", build, "--target", "fa4", "ptxemu", "fa4_xla", "--parallel", str(os.cpu_count()))
    for component in ("library", "python"):
        _run("cmake", "--install", build, "--component", component, "--strip", "--prefix", prefix)


def _configure(build):
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DFA4_BUILD_CLI=OFF", "-DFA4_BUILD_TESTS=OFF", "-DFA4_INSTALL=ON",
               "-DCMAKE_INSTALL_LIBDIR=lib", f"-DFA4_PREBUILD_KERNELS={'ON' if _wants_kernels() else 'OFF'}"]
    if _wants_kernels() and not os.environ.get("FA4_NVRTC"):
        nvrtc = _nvrtc()
        if nvrtc is None:
            _refuse(f"no NVRTC to compile the GPU kernels with; accepted: {NVRTC} installed, FA4_NVRTC=/path/to/libnvrtc.so.13, "
                    "or FA4CPP_PREBUILD=0 for a library that compiles them on first use")
        options.append(f"-DFA4_NVRTC={nvrtc}")
    if shutil.which("ninja"):
        options.append("-GNinja")
    (build / "CMakeCache.txt").unlink(missing_ok=True)  # of a build that other settings failed
    _run("cmake", "-S", ROOT, "-B", build, *options)


def _tag(libraries):
    """Of the oldest system that has what the libraries ask of its C and C++ libraries."""
    names = b"".join(library.read_bytes() for library in libraries)
    newest = {family: max((tuple(map(int, found.split(b"."))) for found in re.findall(rb"\b" + family + rb"_([\d.]+\d)\0", names)),
                          default=(0,)) for family in (b"GLIBC", b"GLIBCXX")}
    glibc = max(newest[b"GLIBC"], (2, 34))
    policy = f"manylinux_{glibc[0]}_{glibc[1]}_x86_64" if newest[b"GLIBCXX"] <= (3, 4, 29) else "linux_x86_64"
    return f"py3-none-{policy}"


def _package_files(prefix):
    """(name in the wheel, path) of everything that is laid down."""
    for path in sorted((HERE / "fa4cpp").rglob("*")):
        if path.is_file() and not LEFT_OUT & set(path.parts) and path.suffix in (".py", ".pyi", ".typed"):
            yield f"fa4cpp/{path.relative_to(HERE / 'fa4cpp').as_posix()}", path
    # Without links, which no wheel has, and pkg-config's files, which ask for one.
    wanted = [*sorted(prefix.glob("include/**/*.h")), *sorted(prefix.glob("lib/*.so.0")), *sorted(prefix.glob("lib/cmake/**/*.cmake"))]
    for path in wanted:
        yield f"fa4cpp/{path.relative_to(prefix).as_posix()}", path


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = f"fa4cpp-{_version()}.dist-info"
    folder = pathlib.Path(metadata_directory) / info
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(_metadata(), encoding="utf-8")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "tree"
        _build(prefix)
        tag = _tag(sorted(prefix.glob("lib/*.so.0")))
        name = f"fa4cpp-{_version()}-{tag}.whl"
        info = f"fa4cpp-{_version()}.dist-info"
        entries = [(entry, path.read_bytes(), os.access(path, os.X_OK)) for entry, path in _package_files(prefix)]
        entries += [(f"{info}/METADATA", _metadata().encode(), False), (f"{info}/entry_points.txt", ENTRY_POINTS.encode(), False),
                    (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fa4cpp\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False),
                    (f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), False)]
        record = "".join(f"{entry},sha256={_digest(data)},{len(data)}\n" for entry, data, _ in entries)
        entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), False))
        with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
            for entry, data, executable in entries:
                member = zipfile.ZipInfo(entry, (2026, 1, 1, 0, 0, 0))  # the same sources give the same bytes
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = (0o100755 if executable else 0o100644) << 16
                wheel.writestr(member, data, compresslevel=9)
    return name


def build_sdist(sdist_directory, config_settings=None):
    top = f"fa4cpp-{_version()}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{top}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in SOURCES:
            archive.add(ROOT / name, f"{top}/{name}", filter=lambda item: None if LEFT_OUT & set(item.name.split("/")) else item)
        metadata = _metadata().encode()
        member = tarfile.TarInfo(f"{top}/PKG-INFO")
        member.size = len(metadata)
        archive.addfile(member, io.BytesIO(metadata))
    return f"{top}.tar.gz"
