#!/usr/bin/env python3
"""What the Python package knows of include/fa4/fa4.h: its structs, constants and functions.

python_abi.py             writes python/fa4cpp/_abi_table.py
python_abi.py --check     exit 1 when that file is not what it would write
python_abi.py --probe F   writes a C program that prints where each field of each struct lies
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/fa4/fa4.h"
TABLE = ROOT / "python/fa4cpp/_abi_table.py"

# A C type and what the module `struct` calls it.
CODES = {"uint32_t": "I", "int32_t": "i", "int64_t": "q", "uint64_t": "Q", "size_t": "N", "float": "f", "char": "s",
         "fa4_status": "i"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def code_of(type_name):
    return "P" if "*" in type_name or type_name == "fa4_log_callback" else CODES[type_name.replace("const ", "").strip()]


def structs(text):
    """name -> [(field, code, count)]"""
    result = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, flags=re.S):
        fields = []
        for type_name, field, count in re.findall(r"([\w \n]+?[ *]+)(\w+)(?:\[(\d+)\])?;", body):
            fields.append((field, code_of(" ".join(type_name.split())), int(count or 1)))
        result[name] = fields
    return result


def constants(text):
    result = {}
    for body in re.findall(r"enum \{(.*?)\}", text, flags=re.S):
        result.update((name, int(value)) for name, value in re.findall(r"(\w+) = (\d+)", body))
    result["FA4_ABI_VERSION"] = int(re.search(r"#define FA4_ABI_VERSION (\d+)", text).group(1))
    return result


def functions(text):
    """name -> (code of what it returns, codes of its arguments); a returned text is "s"."""
    result = {}
    for returned, name, arguments in re.findall(r"FA4_API ([\w ]+?[ *]+)(\w+)\(([^)]*)\);", text, flags=re.S):
        returned = returned.strip()
        codes = []
        for argument in arguments.split(","):
            argument = " ".join(argument.split())
            if argument != "void":
                codes.append(code_of(re.match(r"(.*?[ *])\w+$", argument).group(1).strip()))
        result[name] = ("" if returned == "void" else "s" if returned == "const char*" else code_of(returned), "".join(codes))
    return result


def table(text):
    lines = ['"""Made from include/fa4/fa4.h by tools/python_abi.py; the codes are those of the module `struct`."""', "",
             "# name -> ((field, code, how many), ...)", "STRUCTS = {"]
    for name, fields in structs(text).items():
        lines.append(f'    "{name}": (')
        lines += [f'        ("{field}", "{code}", {count}),' for field, code, count in fields]
        lines.append("    ),")
    lines += ["}", "", "CONSTANTS = {"]
    lines += [f'    "{name}": {value},' for name, value in constants(text).items()]
    lines += ["}", "", "# name -> (what it returns, its arguments)", "FUNCTIONS = {"]
    lines += [f'    "{name}": ("{returned}", "{arguments}"),' for name, (returned, arguments) in functions(text).items()]
    return "\n".join([*lines, "}", ""])


def probe(text):
    lines = ["#include <stdio.h>", '#include "fa4/fa4.h"', "int main(void) {"]
    for name, fields in structs(text).items():
        lines += [f'  printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
                  for field, _, _ in fields]
        lines.append(f'  printf("{name} - %zu 0\\n", sizeof({name}));')
    lines += [f'  printf("{name} = %d 0\\n", (int){name});' for name in constants(text)]
    return "\n".join([*lines, "  return 0;", "}", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--probe", type=pathlib.Path)
    options = parser.parse_args()
    text = without_comments(HEADER.read_text(encoding="utf-8"))
    if options.probe:
        options.probe.write_text(probe(text), encoding="utf-8")
    elif not options.check:
        TABLE.write_text(table(text), encoding="utf-8")
    elif TABLE.read_text(encoding="utf-8") != table(text):
        print(f"python_abi: {TABLE.relative_to(ROOT)} is not what fa4.h says; tools/python_abi.py writes it anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
