#!/usr/bin/env bash
# Builds and passes the tests. Arguments go to ctest: ./test.sh -L unit -R cpu
#
# A test program holds many tests: after ctest's closing lines this counts them one by one, and says
# why any were skipped.
set -euo pipefail
exec </dev/null
cd "$(dirname "$(readlink -f "$0")")"

tools/build.sh
tools/run_tests.sh build/release "$@"
