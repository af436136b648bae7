"""fa4cpp beside a torch that is too old for it, and without one: in processes of their own."""

import os
import subprocess
import sys
import tempfile
import unittest

OLD = """
__version__ = "2.3.1+cpu"
class Tensor:
    pass
"""
CALLS = """
import numpy, fa4cpp
q = numpy.ones((1, 4, 2, 8), numpy.float32)
assert fa4cpp.flash_attn_func(q, q, q).shape == fa4cpp.flash_attn_with_kvcache(q, q, q, cache_seqlens=2).shape == q.shape
assert not hasattr(fa4cpp, "torch") and not hasattr(fa4cpp.compat, "fa2")
import inspect
inspect.getmembers(fa4cpp), inspect.getmembers(fa4cpp.compat)

def raised(function):
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


class OtherTorch(unittest.TestCase):
    def lines(self, program, path=()):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join((*path, *filter(None, (os.environ.get("PYTHONPATH"),)))))
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
        self.assertEqual(run.stderr, "")
        return run.stdout.splitlines()

    def test_an_old_one(self):
        program = CALLS + """
import importlib, torch
for _ in range(2):  # each time the reason, not what is left of the first
    print(raised(lambda: fa4cpp.flash_attn_func(torch.Tensor(), torch.Tensor(), torch.Tensor())))
    print(raised(lambda: importlib.import_module("fa4cpp.torch")))
    print(raised(lambda: importlib.import_module("fa4cpp.compat.fa2")))
print(raised(lambda: fa4cpp.torch))
print(raised(lambda: fa4cpp.compat.fa2))
"""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "torch"))
            with open(os.path.join(folder, "torch", "__init__.py"), "w", encoding="utf-8") as file:
                file.write(OLD)
            text = "torch 2.3.1+cpu; accepted: 2.4 or newer"
            self.assertEqual(self.lines(program, [folder]), [f"ImportError: {text}"] * 6 + [
                f"AttributeError: fa4cpp.torch: {text}", f"AttributeError: fa4cpp.compat.fa2: {text}"])

    def test_none(self):
        program = "import sys; sys.modules['torch'] = None\n" + CALLS + """
import importlib
print(raised(lambda: fa4cpp.torch))
print(raised(lambda: fa4cpp.compat.fa2))
print(raised(lambda: importlib.import_module("fa4cpp.compat.fa2")).partition(":")[0])
"""
        self.assertEqual(self.lines(program), ["AttributeError: fa4cpp.torch needs torch, which is not installed",
                                               "AttributeError: fa4cpp.compat.fa2 needs torch, which is not installed", "ModuleNotFoundError"])


if __name__ == "__main__":
    unittest.main()
