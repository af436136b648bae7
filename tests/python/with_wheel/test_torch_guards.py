"""Calls that are known by those before them (fa4cpp.torch._guards): what differs from them in anything is not mistaken for one."""

import contextlib
import subprocess
import sys
import threading
import unittest

import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fa4cpp
import fa4cpp.torch
from fa4cpp.torch import _fast, _guards


def some(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attend(q, k, v, sink=None, **options):
    """None where the call is not plain."""
    given = dict(softmax_scale=None, causal=True, window=(None, None), softcap=0.0, deterministic=False, sm_margin=0, return_lse=False, **options)
    return _fast.attend(q, k, v, sink, **given)


def slowly(q, k, v, **options):
    """The same call by the operator."""
    lengths = torch.full((q.shape[0],), q.shape[1], dtype=torch.int32)
    return fa4cpp.flash_attn_func(q, k, v, causal=True, seqused_q=lengths, **options)


NESTED_AMONG_KNOWN = """
import torch, fa4cpp
q, sink = torch.zeros(1, 4, 2, 8), torch.zeros(2)
for _ in range(3):
    fa4cpp.flash_attn_func(q.clone(), q.clone(), q.clone(), sink=sink)
for place in range(4):
    given = [q.clone(), q.clone(), q.clone(), sink.clone()]
    given[place] = torch.nested.nested_tensor([given[place]])
    try:
        fa4cpp.flash_attn_func(*given[:3], sink=given[3])
    except fa4cpp.Error as error:
        print(error)
"""


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))


class Guards(unittest.TestCase):
    def setUp(self):
        _fast._forget()
        self.tensors = [some(2, 5, 2, 8, seed=seed) for seed in range(3)]
        for _ in range(3):
            attend(*self.tensors)
        self.assertEqual(len(_guards.RECENT), 1)

    def test_what_a_guard_must_not_take_for_another(self):
        self.assertTrue(_guards._tells_apart())

    def test_a_call_like_it_is_known(self):
        looked_at = []
        entry_of = _fast._entry_of
        _fast._entry_of = lambda *arguments: looked_at.append(1) or entry_of(*arguments)
        try:
            others = [some(2, 5, 2, 8, seed=seed) for seed in range(3, 6)]
            self.assertTrue(torch.equal(attend(*others), slowly(*others)))
        finally:
            _fast._entry_of = entry_of
        self.assertEqual(looked_at, [])

    def test_a_nested_tensor_among_known_ones(self):
        """In a process of its own, which torch's guards end."""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", NESTED_AMONG_KNOWN], capture_output=True, text=True)
        self.assertEqual([line.split(";")[0] for line in done.stdout.splitlines()],
                         ["a dense k or v beside a nested q", "k is nested", "v is nested", "sink is nested"], done.stderr)

    def test_modes_and_transformations(self):
        for context in (Dispatched(), Functions(), FakeTensorMode(), torch.autocast("cpu", torch.bfloat16), forward_ad.dual_level()):
            with context:
                self.assertIsNone(attend(*self.tensors), context)
        seen = []
        torch.vmap(lambda x: seen.append(attend(*self.tensors)) or x)(torch.ones(2))
        torch.func.grad(lambda x: seen.append(attend(*self.tensors)) or x)(torch.ones(()))
        self.assertEqual(seen, [None, None])
        self.assertIsNotNone(attend(*self.tensors))

    def test_other_tensors(self):
        q, k, v = self.tensors
        turned = v.transpose(1, 2).contiguous().transpose(1, 2)
        for others in ((q, q, q), (q, k, turned), (q, k, some(2, 5, 2, 16)), (q[:, :4], k, v), (q.bfloat16(), k.bfloat16(), v.bfloat16()),
                       (torch.nn.Parameter(q), k, v), (q[:1], k[:1], v[:1]), (q, k[:, :, :1], v[:, :, :1])):
            for _ in range(3):
                self.assertTrue(torch.equal(fa4cpp.flash_attn_func(*others, causal=True), slowly(*others)))
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "k has dtype bfloat16; accepted: float32, q's"):
            fa4cpp.flash_attn_func(q, k.bfloat16(), v, causal=True)
        with self.assertRaisesRegex(TypeError, "k is list; accepted: a tensor"):
            fa4cpp.flash_attn_func(q, k.tolist(), v, causal=True)

    def test_a_tensor_that_changes_its_shape(self):
        q, k, v = self.tensors
        q.resize_(2, 3, 2, 8)
        self.assertEqual(fa4cpp.flash_attn_func(q, k, v, causal=True).shape, (2, 3, 2, 8))

    def test_gradients_are_wanted_or_not(self):
        wanting = [tensor.clone().requires_grad_() for tensor in self.tensors]
        with torch.no_grad():
            for _ in range(3):
                attend(*wanting)
        for _ in range(4):
            self.assertIsNone(attend(*self.tensors).grad_fn)
            self.assertIsNotNone(attend(*wanting).grad_fn)
            with torch.no_grad():
                self.assertIsNone(attend(*wanting).grad_fn)
            self.assertIsNotNone(attend(self.tensors[0], self.tensors[1], wanting[2]).grad_fn)
            with torch.inference_mode():
                self.assertTrue(attend(*self.tensors).is_inference())
            self.assertFalse(attend(*self.tensors).is_inference())

    def test_sinks(self):
        q, k, v = self.tensors
        sinks = some(2), some(2, dtype=torch.bfloat16), some(4)[::2], [0.5, -0.5], some(2).requires_grad_()
        for _ in range(4):
            for sink in sinks:
                given = torch.as_tensor(sink).contiguous()
                out = fa4cpp.flash_attn_func(q, k, v, causal=True, sink=sink)
                self.assertTrue(torch.equal(out, slowly(q, k, v, sink=given)))
                self.assertEqual(out.requires_grad, given.requires_grad)

    def test_options_of_other_types(self):
        q, k, v = self.tensors
        fa4cpp.flash_attn_func(q, k, v, causal=True, softcap=1)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "softcap 'x'; accepted: a number"):
            fa4cpp.flash_attn_func(q, k, v, causal=True, softcap="x")
        self.assertIsNone(_fast.attend(q, k, v, None, None, 1, (None, None), 0.0, False, 0, False))

    def test_devices_in_use(self):
        for _ in range(2):
            with contextlib.suppress(fa4cpp.Error), fa4cpp.emulate("h200"):
                self.assertIsNone(attend(*self.tensors))
            self.assertIsNotNone(attend(*self.tensors))

    def test_threads(self):
        shapes = [(1, rows, 2, 8) for rows in range(1, 9)]
        wanted = [slowly(*[some(*shape)] * 3) for shape in shapes]
        wrong = []

        def work():
            for _ in range(50):
                for shape, result in zip(shapes, wanted):
                    q, k, v = (some(*shape) for _ in range(3))
                    if not torch.equal(attend(q, k, v), result):
                        wrong.append(shape)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_without_guards(self):
        works, _guards._works = _guards._works, False
        try:
            _fast._forget()
            for _ in range(3):
                self.assertTrue(torch.equal(attend(*self.tensors), slowly(*self.tensors)))
            self.assertEqual(_guards.RECENT, {})
        finally:
            _guards._works = works


if __name__ == "__main__":
    unittest.main()
