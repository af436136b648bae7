"""Whether the generated PTX wrappers are what their script writes, and number their operands rightly."""

import importlib.util
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("generate_ptx", ROOT / "tools" / "generate_ptx.py")
generate_ptx = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate_ptx)


def expanded(text):
    """The text with its macros put in."""
    text = text.replace("\\\n", "")
    for name, arguments, value in re.findall(r"^#define (FA4_\w+)(\(d\))? +(.*)$", text, re.M):
        text = re.sub(rf"(?<!define ){name}{re.escape(arguments)}(?!\w)", lambda _: value, text)
    return re.sub(r"^#define.*$", "", text, flags=re.M)


def statements(text):
    """(PTX, operands) of each asm statement."""
    for statement in re.findall(r"asm volatile\((.*?)\);\n", expanded(text), re.S):
        match = re.match(r'((?:\s*"(?:[^"\\]|\\.)*")*)(.*)', statement, re.S)
        literals, operands = match.group(1), match.group(2)
        ptx = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace("\\n\\t", "\n")
        yield ptx, re.findall(r'"([+=&]*[a-z])"\s*\(', operands)


class Operands(unittest.TestCase):
    def check(self, text, least):
        count = 0
        for ptx, operands in statements(text):
            used = {int(n) for n in re.findall(r"%(\d+)", ptx)}
            if ptx:
                self.assertEqual(used, set(range(len(operands))), ptx)
                count += 1
        self.assertGreaterEqual(count, least)

    def test_every_operand_is_named_and_every_name_is_an_operand(self):
        for name, text in generate_ptx.generated().items():
            with self.subTest(name):
                self.check(text, 4)

    def test_operands_that_are_mn_major(self):
        for a in False, True:
            for b in False, True:
                text = generate_ptx.families([(96, "bf16", a, b)], generate_ptx.wgmma_ss)
                self.check(text, 2)
                self.assertEqual(text.count(f", 1, 1, {int(a)}, {int(b)};"), 6)
                self.assertEqual("kAStepBytes" in text, a)
                self.assertEqual("kBStepBytes" in text, b)
            text = generate_ptx.families([(96, "f16", a)], generate_ptx.wgmma_rs)
            self.check(text, 2)
            self.assertEqual(text.count(f"one, 1, 1, {int(a)};"), 1 + 2 + 4)

    def test_results_that_begin_at_zero_are_outputs_alone(self):
        text = generate_ptx.families([(96, "bf16")], generate_ptx.wgmma_rows_step, generate_ptx.SUMS_AND_RESULTS)
        self.check(text, 2)
        (_, start), (_, run) = statements(text)
        self.assertEqual((start.count("=f"), start.count("+f")), (48, 0))
        self.assertEqual((run.count("=f"), run.count("+f")), (0, 48))
        self.assertEqual(re.findall(r'"r"\((\d)\), "r"\(1\)', text), ["0", "1"])


class CheckedIn(unittest.TestCase):
    def test_files_are_what_the_script_writes(self):
        for name, text in generate_ptx.generated().items():
            self.assertEqual((ROOT / name).read_text(), text, f"{name}: run tools/generate_ptx.py")


if __name__ == "__main__":
    unittest.main()
