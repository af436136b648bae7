"""What the tests of ptxemu share: a small kernel, its launch file, running the command."""

import json
import os

from support import CommandTest

# y[i] = x[i] * factor + bias for i < n; one block is one tile.
SCALE = """.version 8.7
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.f32 %f1, [factor];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra $done;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  mul.rn.f32 %f3, %f2, %f1;
  st.global.f32 [%rd5], %f3;
$done:
  ret;
}
"""
TWO_KERNELS = """.version 8.7
.target sm_90
.address_size 64
.visible .entry first() { ret; }
.visible .entry second(.param .u32 n) { ret; }
"""


class PtxemuTest(CommandTest):
    cuda_program = os.environ.get("PTXEMU_CUDA_PROGRAM")
    cuda_features = os.environ.get("PTXEMU_CUDA_FEATURES")
    command = os.environ["PTXEMU_COMMAND"]
    program = "ptxemu"

    def setUp(self):
        super().setUp()
        self.ptx = self.write("scale.ptx", SCALE.encode())
        self.x = [float(i) - 3 for i in range(100)]
        self.write_npy("x.npy", [100], self.x)

    def document(self, **changes):
        launch = {
            "kernel": "scale",
            "grid": [4, 1, 1],
            "block": [32, 1, 1],
            "buffers": {
                "x": {"npy": self.path("x.npy")},
                "y": {"zeros": [100], "dtype": "f32", "save": self.path("y.npy")},
            },
            "args": [{"ptr": "x"}, {"ptr": "y", "add": 0}, {"f32": 2.5}, {"i32": 100}],
        }
        launch.update(changes)
        return {key: value for key, value in launch.items() if value is not None}

    def launch_file(self, document, name="launch.json"):
        text = document if isinstance(document, str) else json.dumps(document)
        return self.write(name, text.encode())

    def arguments(self, document, *options):
        return ["run", self.ptx, "--launch", self.launch_file(document), *options]

    def run_launch(self, document, *options, code=0):
        result = self.run_fa4(*self.arguments(document, *options))
        self.assertEqual(result.returncode, code, result.stderr.decode() + result.stdout.decode())
        self.assertEqual(result.stderr, b"")
        return result.stdout.decode()

    def refuse_launch(self, document, *words, options=(), code=2):
        arguments = self.arguments(document, *options)
        return self.refuse(*arguments, code=code, words=["ptxemu run: ", *words])

    def refuse_changed(self, changes, *words, **options):
        return self.refuse_launch(self.document(**changes), *words, **options)
