#!/usr/bin/env bash
# Makes the wheel of a build and tests it as a user has it: tests/python/with_wheel.sh BUILD_DIR
#
# numpy, torch and jax come from PyPI, into BUILD_DIR/wheel-test. Fails when they cannot be installed.
set -euo pipefail
exec </dev/null
here=$(dirname "$(readlink -f "$0")")
root=$(readlink -f "$here/../..")
build=$(readlink -f "$1")
work=$build/wheel-test
rm -rf "$work"
mkdir -p "$work/dist"
python3 -m venv "$work/env"
python=$work/env/bin/python
pip() {
  "$python" -m pip --disable-pip-version-check --no-input "$@" >>"$work/pip.log" 2>&1 ||
    { tail -n 30 "$work/pip.log"; echo "with_wheel: pip $* failed"; exit 1; }
}

echo "--- the wheel"
FA4CPP_BUILD_DIR=$build pip wheel --no-deps --wheel-dir "$work/dist" "$root"
wheel=$(echo "$work"/dist/fa4cpp-*.whl)
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $bytes bytes"
[ "$bytes" -le 12000000 ] || { echo "with_wheel: accepted: at most 12000000 bytes"; exit 1; }
pip install auditwheel
tag=$(basename "$wheel" .whl | sed "s/.*-//")
[ "$tag" = manylinux_2_34_x86_64 ] || { echo "with_wheel: the tag is $tag; accepted: manylinux_2_34_x86_64"; exit 1; }
"$python" -m auditwheel show "$wheel" >"$work/auditwheel.txt"
grep -q "\"$tag\"" "$work/auditwheel.txt" || { cat "$work/auditwheel.txt"; echo "with_wheel: the wheel says $tag"; exit 1; }

echo "--- numpy"
pip install "$wheel" numpy ml_dtypes
(cd "$here/with_wheel" && "$python" -m unittest test_numpy)

echo "--- a C++ program over the installed wheel"
cmake_dir=$(cd "$work" && "$python" -c "import fa4cpp; print(fa4cpp.get_cmake_dir())")
cmake -S "$root/tests/install/find_package" -B "$work/consumer" -Dfa4_DIR="$cmake_dir" >"$work/consumer.log"
cmake --build "$work/consumer" >>"$work/consumer.log" || { cat "$work/consumer.log"; exit 1; }
"$work/consumer/attention_cc"
"$python" "$root/examples/attention.py"

echo "--- what an sdist holds is enough to configure, without git"
"$python" -c "import sys; sys.path.insert(0, '$root/python'); import backend; backend.build_sdist('$work/dist')"
tar -xzf "$work"/dist/fa4cpp-*.tar.gz -C "$work"
cmake -S "$work"/fa4cpp-*/ -B "$work/from_sdist" -DFA4_BUILD_CLI=OFF -DFA4_BUILD_TESTS=OFF -DFA4_PREBUILD_KERNELS=OFF >"$work/from_sdist.log" ||
  { cat "$work/from_sdist.log"; exit 1; }

echo "--- torch"
pip install torch pytest transformers mypy
(cd "$here/with_wheel" && "$python" -m unittest test_torch test_torch_sdpa test_torch_backwards test_torch_guards test_torch_refusals test_serving test_append test_kvcache test_refused_caches test_odd_arguments test_sm_margin test_compat test_peer test_transformers test_context_parallel test_default_dtypes test_compiled_calls test_array_objects test_other_torch test_stubs)

echo "--- jax"
pip install jax
includes=$("$python" -c "import jax; print(jax.ffi.include_dir())")
g++ -std=c++17 -fsyntax-only -I "$includes" "$here/with_wheel/xla_layout.cc"
(cd "$here/with_wheel" && JAX_PLATFORMS=cpu "$python" -m unittest test_jax test_jax_meshes)
"$python" -m pip list --disable-pip-version-check 2>/dev/null | grep -E '^(numpy|torch|jax|jaxlib|ml_dtypes) '
rm -rf "$work/env"
