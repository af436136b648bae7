#!/usr/bin/env bash
# tools/run_tests.sh BUILD_DIR [CTEST ARGUMENTS]: runs a build's tests and counts them.
set -uo pipefail
exec </dev/null
build=$1
shift
rm -rf "$build/test-results"
# A test that hangs ends here; none may fail because others use the machine.
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" --timeout 7200 \
  --output-junit test-results/ctest.xml "$@"
status=$?
python3 "$(dirname "$0")/count_tests.py" "$build/test-results" || [ "$status" != 0 ] || status=1
exit "$status"
