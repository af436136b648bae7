#!/usr/bin/env bash
# What a library shows and needs: tools/check_library.sh LIBRARY.so SYMBOLS.txt [BYTES]
#
# Exports exactly the names in SYMBOLS.txt (as c++filt writes them), links the C and C++ runtimes
# only, is named LIBRARY.so.0, destroys nothing at exit, and has at most BYTES bytes.
set -euo pipefail
library=$1 symbols=$2
name=$(basename "$library").0
status=0

exported=$(nm -DC --defined-only "$library" | sed -nE 's/^[0-9a-f]* [^A] //p' | sed 's/@.*//' | LC_ALL=C sort -u)
expected=$(grep -v '^#' "$symbols" | LC_ALL=C sort -u)
if ! diff <(echo "$expected") <(echo "$exported"); then
  echo "check_library: exports differ from $symbols (< listed, > exported)"
  status=1
fi

dynamic=$(readelf -d "$library")
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' <<<"$dynamic")
runtimes='lib(c\.so\.6|m\.so\.6|stdc\+\+\.so\.6|gcc_s\.so\.1)'
# The emulator has variables of a thread, which are found through the dynamic loader's library.
[ "$name" != libptxemu.so.0 ] || runtimes+='|ld-linux-x86-64\.so\.2'
extra=$(grep -vxE "$runtimes" <<<"$needed" || true)
if [ -n "$extra" ]; then
  echo "check_library: links ${extra//$'\n'/, }; allowed: libc, libm, libstdc++, libgcc_s"
  status=1
fi
# Threads, and static objects from before the library's first use, may call it while the process ends.
if nm -D --undefined-only "$library" | grep -q ' __cxa_atexit'; then
  echo "check_library: has a static object with a destructor; allowed: those that live as long as the process"
  status=1
fi
if ! grep -qF "[$name]" <<<"$(grep '(SONAME)' <<<"$dynamic")"; then
  echo "check_library: its name is not $name"
  status=1
fi
if [ -n "${3:-}" ] && [ "$(stat -Lc %s "$library")" -gt "$3" ]; then
  echo "check_library: has $(stat -Lc %s "$library") bytes; allowed: $3"
  status=1
fi
[ "$status" != 0 ] || echo "check_library: $(wc -l <<<"$exported") exported symbols, needs ${needed//$'\n'/, }"
exit "$status"
