#!/usr/bin/env bash
# From a fresh Debian 12 to exact attention on real tensors: installs what is missing, builds, runs.
# Installs nothing when all is there, reads no standard input, can be run again from anywhere.
set -euo pipefail
exec </dev/null
cd "$(dirname "$(readlink -f "$0")")"

# Once the prebuilt kernels are there, the library and the command keep them.
if [ -e build/release/lib/libfa4_images.a ]; then
  tools/build.sh fa4 fa4_command
else
  tools/build.sh quickstart
fi
echo
examples/minilm.sh build/release/bin/fa4

if [ ! -e build/release/lib/libfa4_images.a ] || [ ! -e build/release/lib/libptxemu.so.0 ]; then
  cat <<TEXT

build/release/bin/fa4 is ready. Not built yet: the prebuilt GPU kernels (until then each is compiled on
first use), the emulated GPUs and ptxemu, the tests. This builds them, in about five minutes of two cores:

  cmake --build $(printf %q "$(pwd -P)")/build/release
TEXT
fi
