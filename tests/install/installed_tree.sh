#!/usr/bin/env bash
# Installs a build, moves the tree, and uses it through find_package, pkg-config and its command.
#
#   tests/install/installed_tree.sh BUILD_DIR
set -euo pipefail
exec </dev/null
here=$(dirname "$(readlink -f "$0")")
build=$(readlink -f "$1")
work=$(mktemp -d "$build/installed.XXXXXX")
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"
tree=$work/moved
library=$(find "$tree" -name libfa4.so)

if grep -rl "$work/first\|$build" "$tree" --include='*.cmake' --include='*.pc' --include='*.h'; then
  echo "the files above name the folder they were built or installed in"
  exit 1
fi
for file in "$library" "${library%/*}/libptxemu.so" "$tree/bin/fa4" "$tree/bin/ptxemu"; do
  # shellcheck disable=SC2016  # the linker expands $ORIGIN
  if readelf -d "$file" | grep -E '\((RUNPATH|RPATH)\)' | grep -v '\[\$ORIGIN'; then
    echo "$file carries a path of the machine that built it"
    exit 1
  fi
done

echo "--- the commands"
"$tree/bin/fa4" --version
"$tree/bin/ptxemu" --version
for device in emulated:h200 emulated:b200; do
  "$tree/bin/fa4" devices | grep -q "^$device " || { echo "the installed fa4 does not list $device"; exit 1; }
done

echo "--- find_package"
cmake -S "$here/find_package" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$tree" >"$work/consumer.log" ||
  { cat "$work/consumer.log"; exit 1; }
cmake --build "$work/consumer" >>"$work/consumer.log" || { cat "$work/consumer.log"; exit 1; }
"$work/consumer/attention_c"
"$work/consumer/attention_cc"
"$work/consumer/emulator"

echo "--- pkg-config"
export PKG_CONFIG_PATH=${library%/*}/pkgconfig
flags=$(pkg-config --cflags --libs fa4)
eval "gcc -std=c99 \"\$here/../../examples/attention.c\" $flags -o \"\$work/with_pkg_config\""
LD_LIBRARY_PATH=${library%/*} "$work/with_pkg_config"
flags=$(pkg-config --cflags --libs ptxemu)
eval "g++ -std=c++20 \"\$here/../../examples/emulator.cc\" $flags -o \"\$work/emulator\""
LD_LIBRARY_PATH=${library%/*} "$work/emulator"

echo "--- without the emulator"
rm "${library%/*}"/libptxemu.so*
if "$tree/bin/fa4" devices | grep emulated; then
  echo "fa4 lists emulated devices, but libptxemu is not installed"
  exit 1
fi
