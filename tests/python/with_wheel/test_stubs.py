"""The type stubs, as mypy sees them, and as the functions are."""

import ast
import glob
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import fa4cpp
from fa4cpp.compat import fa2, fa3, fa4, vllm

PACKAGE = os.path.dirname(fa4cpp.__file__)
SETTINGS = """
[mypy]
strict = True
warn_unreachable = True
[mypy-torch.*]
follow_imports = skip
ignore_missing_imports = True
"""
PROGRAM = """
from typing_extensions import assert_type

import fa4cpp
import fa4cpp.jax
import fa4cpp.torch
from fa4cpp.compat import fa2, fa3, fa4, vllm


class Array: ...


def calls(q: Array, flag: bool) -> None:
    for window in (None, (None, 3), (-1, -1), fa4cpp.Window(right=-1)):
        assert_type(fa4cpp.flash_attn_func(q, q, q, window_size=window), Array)
        fa4cpp.jax.attention(q, q, q, window_size=window)
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_lse=False, return_attn_probs=None, return_softmax_lse=False), Array)
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_lse=True), tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_attn_probs=True), tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_softmax_lse=True), tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_lse=flag), Array | tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_func(q, q, q, return_attn_probs=flag), Array | tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_with_kvcache(q, q, q), Array)
    assert_type(fa4cpp.flash_attn_with_kvcache(q, q, q, return_softmax_lse=True), tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_with_kvcache(q, q, q, return_lse=flag), Array | tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=q, cu_seqlens_k=q, max_seqlen_q=1, max_seqlen_k=1), Array)
    assert_type(fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=q, cu_seqlens_k=q, max_seqlen_q=1, max_seqlen_k=1, return_attn_probs=True),
                tuple[Array, Array])
    assert_type(fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=q, cu_seqlens_k=q, max_seqlen_q=1, max_seqlen_k=1, return_lse=flag),
                Array | tuple[Array, Array])
    fa4cpp.torch.context_parallel.context_parallel_attn_func(q, q, q, return_lse=flag)
    if not fa4cpp.supports(q, q, q):  # unlike other tuples it may be false
        assert_type(fa4cpp.supports(q, q, q).reason, str)
    assert_type(fa4cpp.torch.fallbacks()[0].count, int)
    assert_type(fa4cpp.torch.fallbacks()[0].reason, str)
    fa2.flash_attn_func(q, q, q, 0.0, None, True)
    fa3.flash_attn_func(q, q, q, None, True, window_size=(-1, -1))
    fa4.flash_attn_func(q, q, q, causal=True, window_size=(None, 3))
    vllm.flash_attn_varlen_func(q, q, q, 1, q, 1, seqused_k=q, window_size=[-1, -1])
"""


class Stubs(unittest.TestCase):
    def test_of_strict_programs(self):
        """mypy finds nothing in the stubs, and in a program the types that calls give."""
        with tempfile.TemporaryDirectory() as folder:
            stubs = [os.path.relpath(path, PACKAGE) for path in glob.glob(os.path.join(PACKAGE, "**", "*.pyi"), recursive=True)]
            for path in (*stubs, "py.typed"):
                os.makedirs(os.path.dirname(os.path.join(folder, "fa4cpp", path)), exist_ok=True)
                shutil.copy(os.path.join(PACKAGE, path), os.path.join(folder, "fa4cpp", path))
            for name, text in (("program.py", PROGRAM), ("mypy.ini", SETTINGS)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            run = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "program.py",
                                  *(os.path.join("fa4cpp", path) for path in stubs)],
                                 cwd=folder, env=dict(os.environ, MYPYPATH=folder), capture_output=True, text=True, timeout=300)
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)

    def test_what_an_import_of_all_gives(self):
        """Not torch and jax, which would stand in the place of the modules of these names."""
        for module in (fa4cpp, fa4cpp.torch):
            with open(module.__file__ + "i", encoding="utf-8") as file:
                assigned = {node.targets[0].id: node.value for node in ast.parse(file.read()).body if isinstance(node, ast.Assign)}
            self.assertEqual(ast.literal_eval(assigned["__all__"]), module.__all__)

    def test_of_other_libraries_functions(self):
        """They name the parameters that the functions have, in their order, and which may be left out."""
        for module in (fa2, fa3, fa4, vllm):
            with open(module.__file__ + "i", encoding="utf-8") as file:
                stubs = {node.name: node.args for node in ast.parse(file.read()).body if isinstance(node, ast.FunctionDef)}
            self.assertEqual([name for name in module.__all__ if name not in stubs], [])
            for name, stub in stubs.items():
                parameters = inspect.signature(getattr(module, name)).parameters.values()
                self.assertEqual([each.arg for each in stub.args], [each.name for each in parameters], name)
                self.assertEqual(len(stub.defaults), sum(each.default is not each.empty for each in parameters), name)


if __name__ == "__main__":
    unittest.main()
