"""What the end-to-end tests of the command share: running it, tensor files, attention in plain Python."""

import json
import math
import os
import random
import struct
import subprocess
import tempfile
import unittest

COMMAND = os.environ.get("FA4_COMMAND")
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(PROJECT, "examples", "data")
PACK = {"<f2": "e", "<f4": "f", "<f8": "d", "<i2": "h", "<i4": "i", "<i8": "q", "<u2": "H", "|u1": "B", "|V2": "H", "<V2": "H", ">f4": "f", ">i4": "i"}
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I32": 4, "I64": 8}
CODES = {"F8_E4M3": "B", "BF16": "H", "F16": "e", "F32": "f", "F64": "d", "I16": "h", "I32": "i", "I64": "q"}


def bf16_bits(value):
    """The bf16 nearest to a float, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 & 0xFFFF


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def npy_bytes(descr, shape, values, fortran=False, version=1):
    order = ">" if descr.startswith(">") else "<"
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, tuple(shape))
    width = 2 if version == 1 else 4
    text += " " * (63 - (8 + width + len(text)) % 64) + "\n"
    header = b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text.encode()
    return header + struct.pack(order + str(len(values)) + PACK[descr], *values)


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[8:10], "little")
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}})
    assert (10 + length) % 64 == 0 and not header["fortran_order"]
    code = PACK[header["descr"]]
    count = math.prod(header["shape"])
    return header["descr"], header["shape"], list(struct.unpack_from("<%d%s" % (count, code), data, 10 + length))


def safetensors_bytes(tensors):
    """tensors: name -> (dtype, shape, values)."""
    header, blob = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        piece = struct.pack("<%d%s" % (len(values), CODES[dtype]), *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(piece)]}
        blob += piece
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + blob


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        begin, end = entry["data_offsets"]
        code = CODES[entry["dtype"]]
        count = (end - begin) // SIZES[entry["dtype"]]
        values = struct.unpack_from("<%d%s" % (count, code), data, 8 + length + begin)
        tensors[name] = (entry["dtype"], entry["shape"], list(values))
    return tensors


def normal(count, seed):
    generator = random.Random(seed)
    return [generator.gauss(0, 1) for _ in range(count)]


def attend(q, k, v, causal=False, window=(-1, -1), scale=None, softcap=0.0, sink=None):
    """One head: rows as lists. Returns out rows and lse, straight from the definition."""
    if not q:
        return [], []
    offset = len(k) - len(q)
    scale = 1 / math.sqrt(len(q[0])) if scale is None else scale
    out, lse = [], []
    for i, row in enumerate(q):
        low = 0 if window[0] < 0 else max(0, i + offset - window[0])
        high = len(k) if window[1] < 0 else min(len(k), i + offset + window[1] + 1)
        if causal:
            high = min(high, i + offset + 1)
        scores = [scale * sum(a * b for a, b in zip(row, k[n])) for n in range(low, high)]
        if softcap:
            scores = [softcap * math.tanh(s / softcap) for s in scores]
        logits = scores + ([sink] if sink is not None else [])
        dim = len(v[0]) if v else 0
        if not logits:
            out.append([0.0] * dim)
            lse.append(-math.inf)
            continue
        top = max(logits)
        total = sum(math.exp(s - top) for s in logits)
        lse.append(top + math.log(total))
        weights = [math.exp(s - top) / total for s in scores]
        out.append([sum(w * v[low + n][d] for n, w in enumerate(weights)) for d in range(dim)])
    return out, lse


class CommandTest(unittest.TestCase):
    """A scratch folder for each test, and the command."""

    command = COMMAND
    program = "fa4"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def write_npy(self, name, shape, values, descr="<f4", **options):
        return self.write(name, npy_bytes(descr, shape, values, **options))

    def random_npy(self, name, shape, seed, descr="<f4"):
        values = normal(math.prod(shape), seed)
        rounded = struct.unpack("<%df" % len(values), struct.pack("<%df" % len(values), *values))
        self.write_npy(name, shape, rounded, descr)
        return list(rounded)

    def run_fa4(self, *args, environment=None, **options):
        env = dict(os.environ, FA4_CACHE_DIR=os.path.join(self.folder, "cache"))
        env.update(environment or {})
        return subprocess.run([self.command, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=3600, env=env, **options)

    def succeed(self, *args, **options):
        result = self.run_fa4(*args, **options)
        self.assertEqual(result.returncode, 0, result.stderr.decode() + result.stdout.decode())
        self.assertEqual(result.stderr, b"")
        return result.stdout.decode()

    def json(self, *args):
        document = json.loads(self.succeed(*args, "--json"))
        self.assertEqual(document["schema"], 1)
        self.assertEqual(document["command"], args[0])
        self.assertEqual(document["version"], self.succeed("--version").split()[1])
        self.assertIn("device", document)
        return document

    def refuse(self, *args, code=2, words=(), **options):
        """One line on standard error that starts with the command; nothing on standard output, nothing written."""
        before = self.listing()
        result = self.run_fa4(*args, **options)
        line = result.stderr.decode()
        self.assertEqual(result.returncode, code, line)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(line.count("\n"), 1, line)
        self.assertTrue(line.startswith(self.program), line)
        for word in words:
            self.assertIn(word, line)
        self.assertEqual(self.listing(), before)
        return line

    def listing(self):
        return sorted((name, os.lstat(self.path(name)).st_mtime_ns) for name in os.listdir(self.folder) if name != "cache")


def close(test, values, expected, tolerance):
    test.assertEqual(len(values), len(expected))
    for i, (value, truth) in enumerate(zip(values, expected)):
        if math.isinf(truth) or math.isinf(value):
            test.assertEqual(value, truth, "element %d" % i)
        else:
            test.assertLessEqual(abs(value - truth), tolerance, "element %d: %r, expected %r" % (i, value, truth))
