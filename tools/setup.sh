#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks to build fa4, and nothing when all is there.
#
#   tools/setup.sh         what the library, the command and the tests need, and NVRTC for GPU kernels
#   tools/setup.sh --ci    the formatter, clang with its sanitizers and a compiler cache too
#
# Packages come from apt-get (as root, else through `sudo -n`, else this prints the one line that
# installs them and exits 2). NVRTC 13.0 comes from PyPI into build/venv; without it everything but
# the prebuilt GPU kernels is built, and this says so. Reads no standard input; can be run again.
set -euo pipefail
exec </dev/null
cd "$(dirname "$(readlink -f "$0")")/.."

readonly nvrtc_version=13.0.88

# A command whose presence is enough, or - for a package that is asked for by its own name.
needs=(
  "g++ g++"
  "cmake cmake"
  "ninja ninja-build"
  "python3 python3"
  "pkg-config pkg-config"
  "- python3-venv"
  "- ca-certificates"
  "- libfmt-dev"
  "- libcli11-dev"
  "- nlohmann-json3-dev"
  "- libxxhash-dev"
  "- libzstd-dev"
  "- libgtest-dev"
)
# The leak check passes over allocations by the names of functions, which its symbolizer finds.
[ "${1:-}" = --ci ] && needs+=("clang-format-16 clang-format-16" "clang++-16 clang-16" "- libclang-rt-16-dev" "llvm-symbolizer-16 llvm-16" "ccache ccache" "git git")

missing_packages() {
  local need command package
  for need in "${needs[@]}"; do
    read -r command package <<<"$need"
    if [ "$command" != - ]; then
      command -v "$command" >/dev/null || echo "$package"
    elif command -v dpkg-query >/dev/null; then
      [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || echo "$package"
    fi
  done
}

# dpkg wants ldconfig, which is not on a user's PATH.
apt() {
  "${as_root[@]}" env PATH="/usr/local/sbin:/usr/sbin:/sbin:$PATH" DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

install_packages() {
  local packages=("$@") as_root=()
  local line="apt-get install -y --no-install-recommends ${packages[*]}"
  if ! command -v apt-get >/dev/null; then
    echo "setup: missing: ${packages[*]} (Debian's names); this machine has no apt-get: install them its own way" >&2
    exit 2
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: packages are missing and sudo asks for a password; run: sudo $line" >&2
      exit 2
    fi
    as_root=(sudo -n)
  fi
  echo "setup: installing ${packages[*]}"
  apt update || echo "setup: apt-get update failed; trying with the lists that are here" >&2
  if ! apt install -y --no-install-recommends "${packages[@]}" >build/apt.log 2>&1; then
    tail -n 5 build/apt.log >&2
    echo "setup: could not install; the line that would: $line" >&2
    exit 2
  fi
}

have_nvrtc() {
  compgen -G "build/venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13" >/dev/null &&
    compgen -G "build/venv/lib/python3*/site-packages/nvidia_cuda_nvrtc-$nvrtc_version.dist-info/RECORD" >/dev/null
}

# A stock Debian's pip installs into a virtual environment only.
install_nvrtc() {
  echo "setup: installing NVRTC $nvrtc_version from PyPI into build/venv"
  if ! { build/venv/bin/python -m pip --version || python3 -m venv --clear build/venv; } >build/nvrtc.log 2>&1 ||
    ! build/venv/bin/python -m pip install --no-input --disable-pip-version-check --retries 1 --no-deps \
      "nvidia-cuda-nvrtc==$nvrtc_version" >>build/nvrtc.log 2>&1; then
    echo "setup: PyPI is out of reach (build/nvrtc.log says why); going on without it"
  fi
}

mkdir -p build
read -ra packages <<<"$(missing_packages | tr '\n' ' ')"
[ "${#packages[@]}" = 0 ] || install_packages "${packages[@]}"
[ -n "${FA4_NVRTC:-}" ] || have_nvrtc || install_nvrtc
