#!/usr/bin/env bash
# Builds and runs a project that takes fa4 in by add_subdirectory: tests/install/add_subdirectory.sh BUILD_DIR
#
# It is built beside BUILD_DIR, with the flags of .ci/run: its compilations are those of BUILD_DIR, of which a compiler
# cache knows the results as long as the folders are equally deep.
set -euo pipefail
exec </dev/null
here=$(dirname "$(readlink -f "$0")")
work=$(dirname "$(readlink -f "$1")")/add_subdirectory
# fa4 looks for a compiler cache in its own builds only: a parent chooses for both, as this one does.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
cmake -S "$here/add_subdirectory" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
  -DFA4_PREBUILD_KERNELS=OFF
cmake --build "$work"
"$work/attention_c"
"$work/attention_cc"
