"""What the tests of bench/ share: modules of the tests' own in place of torch and the peers."""

import importlib
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = {
    "torch/__init__.py": "import types\nbfloat16, float16 = float, int\nops = types.SimpleNamespace()\ncuda = types.SimpleNamespace(synchronize=lambda: None)\n",
    "torch/nn/__init__.py": "",
    "torch/nn/attention.py": "SDPBackend = sdpa_kernel = None\n",
    "torch/nn/functional.py": "scaled_dot_product_attention = None\n",
}


class BenchTest(unittest.TestCase):
    """bench/ can be imported, and what install() writes before anything else; all of it is forgotten after a test."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        path, modules = list(sys.path), set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - modules])
        self.addCleanup(lambda: sys.path.__setitem__(slice(None), path))
        sys.path[:0] = [str(self.folder), str(ROOT / "bench")]

    def install(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
