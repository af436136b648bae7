#!/usr/bin/env bash
# Every header compiles alone. tools/check_headers.sh [HEADER ...]: all tracked ones without arguments.
#
# A header that a .cc file of its name includes before anything else is compiled alone by every build, so
# this leaves it to them. That is not so of tests, whose precompiled header comes before the first line.
# Device-only .cuh files are not looked at here: the kernels' own compilation includes each of them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

builds_compile_alone() {
  local source=${1%.h}.cc first
  [[ $1 == @(include|src|cli)/* && -e $source ]] || return 1
  first=$(grep -m 1 '^#include' "$source" | cut -d '"' -f 2)
  [[ /$1 == */$first ]]
}

headers=("$@")
left=0
if [ $# = 0 ]; then
  while read -r header; do
    if builds_compile_alone "$header"; then left=$((left + 1)); else headers+=("$header"); fi
  done < <(git ls-files 'include/*.h' 'src/*.h' 'cli/*.h' 'tests/*.h' 'bench/*.h')
fi

check() {
  local header=$1 language=(g++ -x c++ -std=c++20)
  case $header in
    include/fa4/fa4.h | include/fa4/distributed.h)
      printf '#include "%s"\n' "$header" | gcc -x c -std=c99 -pedantic -Wall -Wextra -Werror -I. -Iinclude -fsyntax-only - || return 1 ;;
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
echo "check_headers: ${#headers[@]} headers compile alone, $left are included first by the .cc file of their name"
