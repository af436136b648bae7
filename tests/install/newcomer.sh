#!/usr/bin/env bash
# What ./quickstart.sh leaves in a clean clone: tests/install/newcomer.sh BUILD_DIR
#
# The command works without the emulator and says how to build it; a library without prebuilt kernels
# is not installed. Once the default target was built there is nothing of this to see.
set -euo pipefail
exec </dev/null
build=$(readlink -f "$1")
if [ -e "$build/lib/libfa4_images.a" ]; then
  echo "newcomer: everything is built here; skipped"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "newcomer: $*"
  exit 1
}

"$build/bin/fa4" devices >"$work/devices"
grep -q '^cpu ' "$work/devices" || fail "fa4 devices does not list the CPU"
! grep emulated "$work/devices" || fail "fa4 devices lists emulated devices"
for command in "verify --seqlen-q 64" "bench forward --seqlen 64"; do
  status=0
  # shellcheck disable=SC2086  # several words
  "$build/bin/fa4" $command --device emulated:b200 >"$work/out" 2>"$work/err" || status=$?
  [ "$status" = 3 ] || fail "fa4 $command --device emulated:b200 exits with $status, not 3"
  [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "fa4 $command says more than one line"
  grep -qF "cmake --build $build" "$work/err" || fail "no command to build it in: $(cat "$work/err")"
done

if grep -q '^FA4_PREBUILD_KERNELS:BOOL=ON' "$build/CMakeCache.txt"; then
  if cmake --install "$build" --prefix "$work/tree" >"$work/install" 2>&1; then
    fail "a library without prebuilt kernels was installed"
  fi
  grep -q "no prebuilt GPU kernels" "$work/install" || fail "no reason given: $(cat "$work/install")"
  [ ! -e "$work/tree" ] || fail "a refused installation left files"
fi
echo "newcomer: all is as said"
