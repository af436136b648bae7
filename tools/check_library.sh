#!/usr/bin/env bash
# What libfa4 shows and needs: tools/check_library.sh LIBFA4.so
#
# Exports exactly src/capi/exported_symbols.txt, links the C and C++ runtimes only, and is named
# libfa4.so.0.
set -euo pipefail
library=$1
root="$(dirname "$(readlink -f "$0")")/.."
status=0

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | LC_ALL=C sort -u)
expected=$(grep -v '^#' "$root/src/capi/exported_symbols.txt" | LC_ALL=C sort -u)
if ! diff <(echo "$expected") <(echo "$exported"); then
  echo "check_library: exports differ from src/capi/exported_symbols.txt (< listed, > exported)"
  status=1
fi

dynamic=$(readelf -d "$library")
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' <<<"$dynamic")
extra=$(grep -vxE 'lib(c\.so\.6|m\.so\.6|stdc\+\+\.so\.6|gcc_s\.so\.1)|ld-linux-x86-64\.so\.2' <<<"$needed" || true)
if [ -n "$extra" ]; then
  echo "check_library: links ${extra//$'\n'/, }; allowed: libc, libm, libstdc++, libgcc_s"
  status=1
fi
if ! grep -q '(SONAME).*\[libfa4\.so\.0\]' <<<"$dynamic"; then
  echo "check_library: its name is not libfa4.so.0"
  status=1
fi
[ "$status" != 0 ] || echo "check_library: $(wc -l <<<"$exported") exported symbols, needs ${needed//$'\n'/, }"
exit "$status"
