#!/usr/bin/env bash
# From a fresh Debian 12 to exact attention on real tensors: installs what is missing, builds, runs.
# Installs nothing when all is there, reads no standard input, can be run again from anywhere.
set -euo pipefail
exec </dev/null
cd "$(dirname "$(readlink -f "$0")")"

tools/build.sh fa4 fa4_command
echo
examples/minilm.sh build/release/bin/fa4
