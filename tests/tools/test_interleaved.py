"""bench/interleaved.py: the order of rounds. torch is a stand-in."""

import collections
import importlib
import unittest

from bench_stand_ins import TORCH, BenchTest


class OrderOfRounds(BenchTest):
    def test_each_call_has_each_place_and_each_one_before_it_equally_often(self):
        self.install(TORCH)
        order_of_round = importlib.import_module("interleaved").order_of_round
        for count in range(2, 10):
            names = [f"call {i}" for i in range(count)]
            places, pairs = collections.Counter(), collections.Counter()
            for r in range(count * (1 + count % 2)):
                order = order_of_round(names, r)
                self.assertEqual(sorted(order), names)
                places.update(enumerate(order))
                pairs.update(zip(order, order[1:]))
            self.assertEqual((len(places), len(pairs)), (count * count, count * (count - 1)))
            self.assertEqual((len(set(places.values())), len(set(pairs.values()))), (1, 1), count)


class Interleave(BenchTest):
    def test_a_sustained_slice_comes_behind_one_of_its_own_call(self):
        self.install(TORCH)
        interleaved = importlib.import_module("interleaved")
        slices = []
        interleaved.time_of = lambda call, repeats: slices.append((call.__name__, repeats)) or 1.0

        def a():
            pass

        def b():
            pass

        times = interleaved.interleave({"a": a, "b": b}, 2, 0, sustained=True)
        self.assertEqual({name: len(found) for name, found in times.items()}, {"a": 2, "b": 2})
        measured = slices[2:]  # behind those that find how often to repeat
        count = interleaved.SLICE_MS
        self.assertEqual([repeats for _, repeats in measured], 4 * [interleaved.LEAD_SLICES * count, count])
        self.assertEqual([name for name, _ in measured[::2]], [name for name, _ in measured[1::2]])


if __name__ == "__main__":
    unittest.main()
