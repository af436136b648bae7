"""What the package knows of fa4.h is what the compiler makes of it."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from fa4cpp import _abi, _abi_table

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Abi(unittest.TestCase):
    def test_the_table_is_what_the_header_says(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools/python_abi.py"), "--check"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_structs_lie_where_the_compiler_puts_them(self):
        lines = subprocess.run([os.environ["FA4_ABI_PROBE"]], capture_output=True, text=True, check=True).stdout.splitlines()
        seen = 0
        for struct, field, number, size in (line.split() for line in lines):
            if field == "=":
                self.assertEqual(_abi_table.CONSTANTS[struct], int(number), struct)
                continue
            layout = _abi.Layout(struct)
            if field == "-":
                self.assertEqual(layout.size, int(number), struct)
            else:
                self.assertEqual(layout.offsets[field], int(number), f"{struct}.{field}")
                seen += 1
        self.assertEqual(seen, sum(map(len, _abi_table.STRUCTS.values())))

    def test_every_exported_function_is_known(self):
        """But those of distributed.h, in whose place Python has torch.distributed."""
        names = (ROOT / "src/capi/exported_symbols.txt").read_text(encoding="utf-8").split()
        of_ranks = set(re.findall(r"\b(fa4_\w+)\(", (ROOT / "include/fa4/distributed.h").read_text(encoding="utf-8")))
        self.assertGreater(len(of_ranks & set(names)), 5)
        self.assertEqual(sorted(_abi_table.FUNCTIONS), sorted(set(names) - of_ranks))

    def test_values_are_read_back(self):
        made = _abi.PROBLEM.make(dtype=2, batch=3, q_strides=(7, 8, 9), softcap=0.5)
        self.assertEqual(len(made), _abi.PROBLEM.size)
        read = _abi.PROBLEM.read(made)
        self.assertEqual((read["struct_size"], read["dtype"], read["batch"], read["q_strides"], read["softcap"]),
                         (_abi.PROBLEM.size, 2, 3, (7, 8, 9), 0.5))


if __name__ == "__main__":
    unittest.main()
