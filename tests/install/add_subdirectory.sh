#!/usr/bin/env bash
# Builds and runs a project that takes fa4 in by add_subdirectory: tests/install/add_subdirectory.sh BUILD_DIR
set -euo pipefail
exec </dev/null
here=$(dirname "$(readlink -f "$0")")
work=$(readlink -f "$1")/add_subdirectory
cmake -S "$here/add_subdirectory" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DFA4_PREBUILD_KERNELS=OFF
cmake --build "$work"
"$work/attention_c"
"$work/attention_cc"
