#!/usr/bin/env bash
# Sets up, configures and builds the preset `release`: what quickstart.sh and test.sh share.
#
#   tools/build.sh [TARGET ...]    the targets named, else all
set -euo pipefail
exec </dev/null
cd "$(dirname "$(readlink -f "$0")")/.."

tools/setup.sh
if ! cmake --preset release >build/configure.log 2>&1; then
  cat build/configure.log >&2
  exit 1
fi
cmake --build --preset release ${1:+--target "$@"}

if grep -q '^-- fa4: no NVRTC' build/configure.log; then
  cat <<'TEXT'

fa4: no NVRTC 13 was found, so the GPU kernels were not built; the CPU is complete without them.
To add them, either run this script again when PyPI can be reached, or name the libnvrtc of a
CUDA 13 toolkit: FA4_NVRTC=/path/to/libnvrtc.so.13 ./quickstart.sh
TEXT
fi
