#!/usr/bin/env python3
"""Lists the instruction forms of PTX: each mnemonic with its qualifiers, types kept.

The emulator's list of forms is made from it: from the PTX of the kernels that must run, and from
the syntax blocks of the PTX ISA manual (--manual), one markdown file a section. Spellings of one
form that differ in the order of their qualifiers count as one, under the most frequent spelling;
types (.f32.bf16) and comparisons keep their order, which means something.
"""

import argparse
import collections
import itertools
import pathlib
import re
import sys

OPCODE = re.compile(r"(?:@!?[\w$%]+\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?=[\s;\[{(]|$)")
LABEL = re.compile(r"\s*[\w$%]+\s*:(?!:)")
LINE_DIRECTIVE = re.compile(r"^\s*\.(loc|file|version|target|address_size)\b.*$", re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TYPE = re.compile(r"([busf]\d+(x\d+)?|bf16(x2)?|tf32|e\dm\d(x\d)?|pred)$")
SLOT = re.compile(r"\.([A-Za-z]\w*(?:::\w+)*)")
FULL_PRODUCT = 256  # of a template's alternatives; above it each alternative appears once


def statements(text):
    """Every instruction of PTX text, without labels, comments and directives."""
    text = LINE_DIRECTIVE.sub("", COMMENT.sub(" ", text))
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    current, depth = "", 0
    for token in re.findall(r"[^;{}]+|[;{}]", text):
        if token == ";" and depth == 0:
            if current:
                yield current
            current = ""
        elif token in "{}" and not depth and not OPCODE.match(current):
            current = ""  # a block opens or closes, not a vector of operands
        else:
            depth += {"{": 1, "}": -1}.get(token, 0)
            current += token
            while not depth and (label := LABEL.match(current)):
                current = current[label.end() :]
            current = current.lstrip()


def operand_shape(text):
    """`{r,r},[r,{r,r}],i` -> `{2},[r{2}],i`: registers, immediates, vectors, addresses."""
    text = re.sub(r"\s+", "", text)
    text = re.sub(r"\{([^{}]*)\}", lambda m: "{%d}" % (m[1].count(",") + 1), text)
    number = r"(0[xX][0-9a-fA-F]+U?|0[fFdD][0-9a-fA-F]+|\d[\w.]*)"
    text = re.sub(r"(?<![\w{$%.])-?" + number + r"(?![\w}])", "i", text)
    return re.sub(r"[%$A-Za-z_][\w$%.]*", lambda m: "i" if m[0] == "i" else "r", text)


def forms_of_ptx(text, with_operands):
    for statement in statements(text):
        if statement.startswith((".", "generic(")):
            continue  # a declaration, or a part of its initialiser
        match = OPCODE.match(statement)
        if not match:
            raise ValueError(f"not an instruction: {statement[:80]!r}")
        shape = operand_shape(statement[match.end() :]) if with_operands else ""
        yield match[1] + (" " + shape if shape else "")


def key(form):
    """The same for two spellings of one form."""
    opcode, _, shape = form.partition(" ")
    mnemonic, *qualifiers = opcode.split(".")
    types = tuple(q for q in qualifiers if TYPE.match(q))
    others = tuple(sorted(q for q in qualifiers if not TYPE.match(q)))
    return mnemonic, others, types, shape


def alternatives(text):
    """`.shared{::cta, ::cluster}, .global` -> .shared, .shared::cta, .shared::cluster, .global."""
    found = []
    for item in re.findall(r"(?:[^,{]|\{[^}]*\})+", text):
        base, _, endings = item.strip().rstrip("}").partition("{")
        found.append(base.strip())
        found += [base.strip() + ending.strip() for ending in endings.split(",") if endings]
    return [a for a in found if re.fullmatch(r"\.[\w:]+", a)]


def syntax_blocks(markdown):
    for block in re.findall(r"^Syntax\s*\n(.*?)^(?:Description|#)", markdown, re.S | re.M):
        yield COMMENT.sub("", block)


def expand(template, slots):
    """Every spelling of `mbarrier.init{.shared{::cta}}.b64`, given what its slots stand for."""
    choices = []
    for part in re.findall(r"\{(?:[^{}]|\{[^}]*\})*\}|\.?[\w:]+", template):
        optional = part.startswith("{")
        items = alternatives(part[1:-1] if optional else part)
        groups = [part[1:-1]] if optional and "," not in part else items or [part]
        spelled = []
        for group in groups:
            names = SLOT.findall(re.sub(r"\{.*?\}", "", group))
            if all("." + name in slots for name in names) and names:
                spelled += ["".join(c) for c in itertools.product(*(slots["." + n] for n in names))]
            else:
                spelled += alternatives(group) or [group]
        choices.append(([""] if optional else []) + spelled)
    total = 1
    for choice in choices:
        total *= len(choice)
    if total <= FULL_PRODUCT:
        return {"".join(c) for c in itertools.product(*choices)}
    base = [choice[0] for choice in choices]
    return {
        "".join(base[:i] + [value] + base[i + 1 :])
        for i, choice in enumerate(choices)
        for value in choice
    }


def forms_of_manual(folder):
    for path in sorted(folder.rglob("*.md")):
        for block in syntax_blocks(path.read_text()):
            slots = {}
            for name, text in re.findall(r"(\.[\w:]+)\s*=\s*\{((?:[^{}]|\{[^}]*\})*)\}", block):
                dotted = re.sub(r"(^|,)\s*(?=\w)", r"\1 .", text)  # comparisons stand without dots
                slots[name] = alternatives(dotted)
            for line in re.sub(r"\.[\w:]+\s*=\s*\{(?:[^{}]|\{[^}]*\})*\};?", "", block).split(";"):
                head = re.match(r"\s*([a-z]\w*(?:\.[\w:]+|::\w+|\{(?:[^{}]|\{[^}]*\})*\})*)", line)
                if head and ("." in head[1] or line.strip() == head[1]):
                    yield from expand(head[1], slots)


def spread(pattern):
    """`ld{,.weak}.{b32,u32}` is four forms."""
    match = re.match(r"([^{]*)\{([^}]*)\}(.*)", pattern)
    if not match:
        return [pattern]
    return [match[1] + choice + rest for choice in match[2].split(",") for rest in spread(match[3])]


def listed(path):
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            yield from spread(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE.ptx")
    parser.add_argument(
        "--manual",
        type=pathlib.Path,
        metavar="DIR",
        help="adds the forms of the manual's syntax blocks in DIR's markdown; of a template with "
        f"more than {FULL_PRODUCT} spellings, each alternative once",
    )
    parser.add_argument(
        "--counts",
        action="store_true",
        help="after each form: occurrences, and the files that hold it",
    )
    parser.add_argument(
        "--operands",
        action="store_true",
        help="tells forms apart by their operands too: r register, i immediate, {4} vector, "
        "[r] address",
    )
    parser.add_argument(
        "--missing",
        type=pathlib.Path,
        metavar="LIST",
        help="only forms that LIST (src/emulator/isa/forms.txt) has in no spelling",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="forms that begin with it")
    options = parser.parse_args()
    if not options.files and not options.manual:
        parser.error("FILE.ptx or --manual is needed")

    spellings = collections.defaultdict(collections.Counter)
    files = collections.defaultdict(set)
    for path in options.files:
        try:
            for form in forms_of_ptx(path.read_text(errors="replace"), options.operands):
                spellings[key(form)][form] += 1
                files[key(form)].add(path.stem)
        except ValueError as error:
            sys.exit(f"ptx_forms: {path}: {error}")
    for form in forms_of_manual(options.manual) if options.manual else ():
        spellings[key(form)][form] += 0
    known = {key(form) for form in listed(options.missing)} if options.missing else set()
    rows = []
    for identity, counter in spellings.items():
        form = min(counter, key=lambda f: (-counter[f], f))
        if identity in known:
            continue
        if re.match(options.only, form):
            rows.append((form, sum(counter.values()), sorted(files[identity])))
    for form, count, names in sorted(rows):
        print(f"{form}\t{count}\t{','.join(names)}" if options.counts else form)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"ptx_forms: {error}")
