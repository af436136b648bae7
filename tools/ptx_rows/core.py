"""What the families share: data, expected outputs as text, the assembler's opinion, the file format."""

import collections
import itertools
import pathlib
import re
import struct
import subprocess
import tempfile

MASK64 = (1 << 64) - 1
WORDS_SHOWN = 48


def splitmix(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK64
    z = state
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return state, z ^ z >> 31


def make_data(description):
    """The bytes of a data description; tests/ptx/fixture_file.h says what they mean."""
    kind, _, rest = description.partition(":")
    if kind == "words":
        return b"".join(struct.pack("<I", int(w, 16)) for w in rest.split(","))
    size, _, rest = rest.partition(":")
    size, state, data = int(size), 1, bytearray()
    if kind == "bits":
        while len(data) < size:
            state, bits = splitmix(state)
            data += struct.pack("<I", bits & 0xFFFFFFFF)
    elif kind in ("count2", "count4"):
        element = int(kind[-1])
        for i in itertools.count():
            if len(data) >= size:
                break
            data += (i & (1 << 8 * element) - 1).to_bytes(element, "little")
    elif kind == "pick":
        choices = rest.split(",")
        while len(data) < size:
            state, bits = splitmix(state)
            choice = choices[(bits >> 33) % len(choices)]
            data += int(choice, 16).to_bytes(len(choice) // 2, "little")
    else:
        raise ValueError(f"no data is called {kind}")
    return bytes(data)


def words_of(data):
    data = bytes(data) + b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def describe(data):
    """As `describe` of tests/ptx/fixture_file.cc."""
    groups = [(f"{w:x}", len(list(same))) for w, same in itertools.groupby(words_of(data))]
    shown = [w + (f"*{n}" if n > 1 else "") for w, n in groups]
    if len(shown) <= WORDS_SHOWN:
        return " ".join(shown)
    fnv = 0xCBF29CE484222325
    for byte in bytes(data):
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK64
    return f"{' '.join(shown[:8])} fnv={fnv:016x}"


def u32s(*values):
    return b"".join(struct.pack("<I", v & 0xFFFFFFFF) for v in values)


def u64s(*values):
    return b"".join(struct.pack("<Q", v & MASK64) for v in values)


def encode(kind, value):
    """The bits of a number that the format holds or rounds to nearest even; no overflow, no NaN."""
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind in ("f32", "tf32"):
        return struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if kind in ("s8", "u8"):
        return int(value) & 0xFF
    exponent_bits, mantissa_bits = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}[kind]
    bias = (1 << exponent_bits - 1) - 1
    for bits in range(1 << exponent_bits + mantissa_bits):
        exponent, mantissa = bits >> mantissa_bits, bits & (1 << mantissa_bits) - 1
        scale = 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
        if (mantissa + ((1 << mantissa_bits) if exponent else 0)) * scale == abs(value):
            return bits | (value < 0) << exponent_bits + mantissa_bits
    raise ValueError(f"{kind} does not hold {value}")


def decode(kind, bits):
    if kind == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if kind in ("f32", "tf32"):
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if kind == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if kind in ("s8", "u8"):
        return bits - 256 if kind == "s8" and bits > 127 else bits
    exponent_bits, mantissa_bits = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}[kind]
    bias = (1 << exponent_bits - 1) - 1
    sign = -1.0 if bits >> exponent_bits + mantissa_bits & 1 else 1.0
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    return sign * (mantissa + ((1 << mantissa_bits) if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)


def product(*parts):
    """The forms that a product of alternatives stands for, an empty alternative left out."""
    choices = [[p] if isinstance(p, str) else p for p in parts]
    return [".".join(w for w in words if w) for words in itertools.product(*choices)]


def merged_once(items):
    """Joins items (a tuple of alternatives for each word) that differ in one word, or by having it."""
    for position in reversed(range(max(map(len, items)))):
        groups = collections.defaultdict(set)
        for item in sorted(items):
            if position < len(item):
                groups[item[:position], item[position + 1:]].update(item[position])
            else:
                groups[item, None].add(None)
        for before, after in list(groups):
            shorter = (before + after, None) if after is not None and len(before + after) <= position else None
            for other in groups:
                if after is not None and position and (before + after) == whole(other, groups[other], position):
                    shorter = other
            if shorter in groups and (before, after) in groups:
                del groups[shorter]
                groups[before, after].add("")
        items = {whole(key, found, position) for key, found in groups.items()}
    return items


def whole(key, found, position):
    before, after = key
    return before if after is None else before + (tuple(sorted(found)),) + after


def patterns(forms):
    """Texts with {a,b} that stand for exactly these forms."""
    items = {tuple((w,) for w in form.split(".")) for form in forms}
    while True:
        fewer = merged_once(items)
        if len(fewer) == len(items):
            break
        items = fewer
    return sorted("".join(spelled(choice, i == 0) for i, choice in enumerate(item)) for item in fewer)


def spelled(choice, first):
    dot = "" if first else "."
    if "" in choice:
        return "{" + ",".join(dot + c if c else "" for c in choice) + "}"
    return dot + (choice[0] if len(choice) == 1 else "{" + ",".join(choice) + "}")


class Kernel:
    def __init__(self, name, body, head="", entry=""):
        self.name, self.body, self.head, self.entry = name, body, head, entry

    def parts(self, values, form):
        return [substitute(text, {**values, "form": form}) for text in (self.head, self.entry, self.body)]


def substitute(text, values):
    for key in sorted(values, reverse=True):
        text = text.replace("$" + key, str(values[key]).replace("~", " "))
    return re.sub(r"<<(\d+)\|(.*?)>>", repeated, re.sub(r"\$[A-Z]", "", text))


def repeated(match):
    """<<3|%r#,>> is %r0,%r1,%r2 and <<2|[%d1+#4]>> is [%d1+0][%d1+4]."""
    texts = [re.sub(r"#(\d*)", lambda m: str(i * int(m[1] or 1)), match[2]) for i in range(int(match[1]))]
    return "".join(texts).removesuffix(",")


def lines(text):
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def entry(kernel, values, form, name):
    """The kernel of one form."""
    _, directives, body = kernel.parts(values, form)
    return (f".visible .entry {name}(.param .u64 out, .param .u64 in, .param .align 64 .b8 map[128])\n"
            + "".join(line + "\n" for line in lines(directives)) +
            "{\n.reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .b64 %d<32>;\n"
            ".reg .f32 %f<32>; .reg .f64 %g<8>; .reg .b128 %q<4>;\n"
            ".reg .b64 %out, %in; .reg .b32 %t;\n"
            "ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n"
            + "\n".join(lines(body)) + "\nret; }\n")


def preamble(arch, head):
    return f".version 9.0\n.target {arch}\n.address_size 64\n" + "\n".join(lines(head)) + "\n"


def module(kernel, values, forms, arch):
    """A module with a kernel of each form, and the first line of each."""
    text = preamble(arch, kernel.parts(values, forms[0])[0])
    starts = []
    for i, form in enumerate(forms):
        starts.append(text.count("\n") + 1)
        text += entry(kernel, values, form, f"k{i}")
    return text, starts


def refused_by_ptxas(kernel, values, forms, arch):
    """{form: what ptxas says} of the forms that it does not take."""
    refused, left = {}, list(forms)
    while left:
        text, starts = module(kernel, values, left, arch)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "forms.ptx"
            path.write_text(text)
            done = subprocess.run(["ptxas", f"-arch={arch}", "-O0", str(path), "-o", "/dev/null"],
                                  capture_output=True, text=True)
        if done.returncode == 0:
            break
        found = set()
        for line, why in re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", done.stdout + done.stderr):
            index = sum(start <= int(line) for start in starts) - 1
            if index >= 0:
                refused.setdefault(left[index], why)
                found.add(left[index])
        if not found:
            raise RuntimeError(f"{kernel.name} {left[:3]}: {done.stderr[:600]}")
        left = [form for form in left if form not in found]
    return refused


class Family:
    """Rows of one file."""

    def __init__(self, name, title):
        self.name, self.title = name, title
        self.kernels, self.rows = {}, collections.OrderedDict()
        self.dropped = {}

    def kernel(self, name, body, head="", entry=""):
        self.kernels[name] = Kernel(name, body, head, entry)

    def row(self, kernel, forms, want, origin, **values):
        """`want`: the output's bytes, or text (of a trap, a refusal, vprintf)."""
        if not isinstance(want, str):
            values["out"] = len(want)
            want = describe(want)
        values = {k: str(v).replace(" ", "~") for k, v in values.items() if v != ""}
        key = (kernel, tuple(sorted(values.items())), want, origin)
        self.rows.setdefault(key, []).extend([forms] if isinstance(forms, str) else forms)

    def check(self, arches=("sm_90a", "sm_100a")):
        """Gives each form the first architecture that ptxas takes it for; drops the rest."""
        groups = collections.defaultdict(list)
        for (kernel, values, want, origin), forms in self.rows.items():
            groups[kernel, values].append((want, origin, forms))
        done = collections.OrderedDict()
        for (kernel, values), rows in groups.items():
            wanted = dict(values)
            left = list(dict.fromkeys(f for _, _, forms in rows for f in forms))
            taken = {}
            for arch in (wanted["arch"],) if "arch" in wanted else arches:
                why = refused_by_ptxas(self.kernels[kernel], wanted, left, arch)
                taken.update({f: arch for f in left if f not in why})
                left = [f for f in left if f in why]
                self.dropped.update({f: why[f] for f in left})
            for want, origin, forms in rows:
                for form in forms:
                    if form in taken:
                        self.dropped.pop(form, None)
                        key = (kernel, tuple(sorted({**wanted, "arch": taken[form]}.items())), want, origin)
                        done.setdefault(key, []).append(form)
        self.rows = done

    def text(self):
        out = [f"# {self.title}", "# Made by tools/ptx_fixtures.py write; docs/emulator.md, \"Fixtures\", has the format."]
        used = {key[0] for key in self.rows}
        for kernel in self.kernels.values():
            if kernel.name not in used:
                continue
            out.append(f"kernel {kernel.name}")
            out += ["head " + line for line in lines(kernel.head)]
            out += ["entry " + line for line in lines(kernel.entry)]
            out += ["| " + line for line in lines(kernel.body)]
        origin, common = None, {}
        rows = list(self.rows.items())
        for i, ((kernel, values, want, row_origin), forms) in enumerate(rows):
            if row_origin != origin:
                out.append(f"origin {row_origin}")
                origin = row_origin
            values = dict(values)
            if not common.items() <= values.items() or len(values) - len(common) > 3:
                following = dict(rows[i + 1][0][1]) if i + 1 < len(rows) else {}
                fresh = dict(values.items() & following.items())
                if fresh != common:
                    common = fresh
                    out.append(" ".join(["with"] + [f"{k}={v}" for k, v in sorted(common.items())]))
            shown = [f"{k}={v}" for k, v in sorted(values.items()) if k not in common]
            line = " ".join(["row", kernel] + shown)
            spelled_forms = patterns(dict.fromkeys(forms))
            if sum(map(len, spelled_forms)) < 160:
                out.append(f"{line} | {' '.join(spelled_forms)} | {want}")
                continue
            out.append(line)
            line = "form"
            for pattern in spelled_forms:
                if len(line) + len(pattern) > 150 and line != "form":
                    out.append(line)
                    line = "form"
                line += " " + pattern
            out += [line, f"want {want}"]
        return "\n".join(out) + "\n"
