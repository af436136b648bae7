#!/usr/bin/env bash
# Every header compiles alone. tools/check_headers.sh [HEADER ...]: all tracked ones without arguments.
#
# Device-only .cuh files are not looked at here: the kernels' own compilation includes each of them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
[ $# -gt 0 ] || mapfile -t -O 1 headers < <(git ls-files 'include/*.h' 'src/*.h' 'cli/*.h' 'tests/*.h' 'bench/*.h')
[ $# = 0 ] || headers=("$@")

check() {
  local header=$1 language=(g++ -x c++ -std=c++20)
  case $header in
    include/fa4/fa4.h)
      printf '#include "%s"\n' "$header" | gcc -x c -std=c99 -pedantic -Wall -Wextra -Werror -I. -fsyntax-only - || return 1 ;;
    include/*) language=(g++ -x c++ -std=c++17 -pedantic) ;;
    cli/*) language+=(-DFA4_VERSION_TEXT='""') ;; # from CMake
    # Intrinsics need the instruction set that each .cc of the room is compiled for.
    src/cpu/*) language+=(-march=sapphirerapids) ;;
  esac
  printf '#include "%s"\n' "$header" |
    "${language[@]}" -DFMT_HEADER_ONLY -Wall -Wextra -Werror -I. -Iinclude -Isrc -Icli -Itests -fsyntax-only - ||
    { echo "check_headers: $header does not compile alone"; return 1; }
}
export -f check
# shellcheck disable=SC2016  # the inner shell expands it
printf '%s\0' "${headers[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'check "$0"'
echo "check_headers: ${#headers[@]} headers compile alone"
