// fa4_append on GPUs, emulated: the CPU's bits, whatever the layout, and nothing else written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device_memory.h"

namespace {

// Five sequences, one of them without new rows; their caches dense, or on pages of 6.
struct Fixture {
  static constexpr int64_t kBatch = 5, kNew = 7, kRoom = 40;

  explicit Fixture(int32_t dtype, int64_t heads = 2, int64_t dim = 40, int64_t dim_v = 24) {
    problem.dtype = dtype;
    problem.batch = kBatch;
    problem.seqlen_q = kNew;
    problem.seqlen_k = kRoom;
    problem.heads_q = problem.heads_kv = heads;
    problem.head_dim = dim;
    problem.head_dim_v = dim_v;
    k = numbers(static_cast<size_t>(kBatch * kNew * heads * dim), 1);
    v = numbers(static_cast<size_t>(kBatch * kNew * heads * dim_v), 2);
    positions = {0, 33, 8, 12, 1};
  }
  void lay_on_pages() {
    problem.layout_kv = FA4_PAGED;
    problem.page_size = 6;
    problem.pages_per_seq = 7;
    problem.num_pages = 36;
    table.assign(35, 2147480000);
    for (size_t b = 0; b < 5; ++b) {
      for (int i = positions[b] / 6; i <= (positions[b] + 6) / 6; ++i) {
        table[b * 7 + static_cast<size_t>(i)] = static_cast<int32_t>((b * 7 + i) * 11 % 35);
      }
    }
  }
  void pack() {
    problem.layout_q = FA4_PACKED;
    problem.total_q = kBatch * kNew;
    starts = {0, 7, 9, 9, 10, 16};
    args.has_totals = 1;
    args.total_q = 18;  // the last two rows belong to no sequence
  }
  void turn(int64_t dim, int32_t pairs, int32_t type) {
    args.rotary_dim = dim;
    args.rotary_rows = kRoom;
    args.rotary_pairs = pairs;
    args.rotary_dtype = type;
    const auto count = static_cast<size_t>(kRoom * dim / 2);
    for (Bytes* factors : {&cosines, &sines}) {
      if (type == FA4_F32) {
        std::vector<float> floats(count);
        for (size_t i = 0; i < count; ++i) {
          const float angle = static_cast<float>(i) * 0.37f;
          floats[i] = factors == &cosines ? std::cos(angle) : std::sin(angle);
        }
        factors->resize(count * 4);
        std::memcpy(factors->data(), floats.data(), factors->size());
      } else {
        const std::vector<uint16_t> bits = numbers(count, factors == &cosines ? 5 : 6);
        factors->resize(count * 2);
        std::memcpy(factors->data(), bits.data(), factors->size());
      }
    }
  }

  // Descales of a head, of 128 keys, or of a page; those of k by strides of their own.
  void quantise(int32_t block) {
    problem.kv_dtype = FA4_E4M3;
    problem.has_descales = 1;
    problem.descale_block = block;
    const bool of_pages = problem.layout_kv == FA4_PAGED && block == problem.page_size;
    const int64_t heads = problem.heads_kv, blocks = of_pages ? problem.num_pages : 1;
    const int64_t outer = of_pages ? 1 : kBatch;
    problem.k_descale_strides[0] = of_pages ? 77777 : heads * blocks;
    problem.k_descale_strides[1] = 1, problem.k_descale_strides[2] = blocks;
    for (int64_t i = 0; i < outer * heads * blocks; ++i) {
      k_descale.push_back(0.001f * static_cast<float>(i % 37 + 1));
    }
    v_descale = {0.003f};
  }

  size_t cache_bytes(int64_t dim) const {
    const int64_t rows =
        problem.layout_kv == FA4_PAGED ? problem.num_pages * problem.page_size : kBatch * kRoom;
    const int64_t element = problem.kv_dtype == FA4_E4M3 ? 1 : 2;
    return static_cast<size_t>(rows * problem.heads_kv * dim * element);
  }

  // k_cache, then v_cache: 0x5a where nothing was written.
  std::vector<Bytes> append(const fa4::Device& device, bool is_gpu) const {
    const Bytes k_empty(cache_bytes(problem.head_dim), 0x5a);
    const Bytes v_empty(cache_bytes(problem.head_dim_v), 0x5a);
    std::vector<Bytes> caches{k_empty, v_empty};
    fa4::AppendArgs a = args;
    if (!is_gpu) {
      const auto or_null = [](const auto& data) { return data.empty() ? nullptr : data.data(); };
      a.k = k.data();
      a.v = v.data();
      a.k_cache = caches[0].data();
      a.v_cache = caches[1].data();
      a.positions = positions.data();
      a.cu_seqlens_q = or_null(starts);
      a.seqused_q = or_null(used);
      a.page_table = or_null(table);
      a.cos = or_null(cosines);
      a.sin = or_null(sines);
      a.k_descale = or_null(k_descale);
      a.v_descale = or_null(v_descale);
      fa4::append(device, problem, a);
      return caches;
    }
    std::vector<DeviceMemory> copies;
    const auto copy = [&](const auto& data) -> void* {
      if (data.empty()) return nullptr;
      copies.emplace_back(device.get(), data.data(), data.size() * sizeof(data[0]));
      return copies.back().template as<void>();
    };
    a.k = copy(k);
    a.v = copy(v);
    a.positions = static_cast<int32_t*>(copy(positions));
    a.cu_seqlens_q = static_cast<int32_t*>(copy(starts));
    a.seqused_q = static_cast<int32_t*>(copy(used));
    a.page_table = static_cast<int32_t*>(copy(table));
    a.cos = copy(cosines);
    a.sin = copy(sines);
    a.k_descale = static_cast<float*>(copy(k_descale));
    a.v_descale = static_cast<float*>(copy(v_descale));
    const DeviceMemory k_copy(device.get(), caches[0].data(), caches[0].size());
    const DeviceMemory v_copy(device.get(), caches[1].data(), caches[1].size());
    a.k_cache = k_copy.as<void>();
    a.v_cache = v_copy.as<void>();
    fa4::append(device, problem, a);
    return {k_copy.fetch(), v_copy.fetch()};
  }

  fa4::Problem problem;
  fa4::AppendArgs args;
  std::vector<uint16_t> k, v;
  std::vector<int32_t> positions, table, starts, used;
  Bytes cosines, sines;
  std::vector<float> k_descale, v_descale;
};

class AppendOnGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fa4_device* device = nullptr;
    if (fa4_open_device(GetParam(), &device) != FA4_OK) GTEST_SKIP() << fa4_last_error();
    fa4_close_device(device);
    try {
      run(Fixture(FA4_BF16));
    } catch (const fa4::Error& error) {
      if (error.status() == FA4_COMPILER) GTEST_SKIP() << error.what();
      throw;
    }
  }
  static std::vector<Bytes> run(const Fixture& f) {
    return f.append(fa4::Device(GetParam()), true);
  }
  static void expect_the_cpus_bits(const Fixture& f) {
    const std::vector<Bytes> wanted = f.append(fa4::Device("cpu"), false);
    EXPECT_NE(wanted[0], Bytes(wanted[0].size(), 0x5a));
    const std::vector<Bytes> got = run(f);
    for (size_t which = 0; which < 2; ++which) {
      const auto at = std::mismatch(wanted[which].begin(), wanted[which].end(), got[which].begin());
      EXPECT_EQ(at.first, wanted[which].end())
          << (which == 0 ? "k" : "v") << ", byte " << at.first - wanted[which].begin();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, AppendOnGpu, testing::Values("emulated:h200", "emulated:b200"),
                         [](const auto& info) { return std::string(info.param + 9); });

TEST_P(AppendOnGpu, EveryLayout) {
  for (const int32_t dtype : {FA4_BF16, FA4_F16}) {
    for (const bool paged : {false, true}) {
      for (const bool packed : {false, true}) {
        Fixture f(dtype);
        if (paged) f.lay_on_pages();
        if (packed) f.pack();
        expect_the_cpus_bits(f);
        f.problem.has_seqused_q = 1;
        f.used = packed ? std::vector<int32_t>{7, 1, 0, 1, 2} : std::vector<int32_t>{0, 7, 3, 7, 1};
        expect_the_cpus_bits(f);
      }
    }
  }
}

// Halves and neighbours; pairs that end inside of 16 bytes, and halves of odd lengths.
TEST_P(AppendOnGpu, EveryRotation) {
  for (const int32_t dtype : {FA4_BF16, FA4_F16}) {
    for (const int32_t pairs : {FA4_ROTARY_HALVES, FA4_ROTARY_INTERLEAVED}) {
      for (const int64_t dim : {2, 14, 32, 40}) {
        for (const int32_t type : {0, static_cast<int32_t>(FA4_F32)}) {
          Fixture f(dtype);
          f.lay_on_pages();
          f.turn(dim, pairs, type);
          expect_the_cpus_bits(f);
        }
      }
    }
  }
}

// Into caches of bytes: with descales of every kind and without, turned and not.
TEST_P(AppendOnGpu, QuantisesBytes) {
  for (const int32_t dtype : {FA4_BF16, FA4_F16}) {
    for (const bool paged : {false, true}) {
      for (const int32_t block : {-1, 0, 128, 6}) {
        if (block == 6 && !paged) continue;
        Fixture f(dtype, 2, 48, 32);
        if (paged) f.lay_on_pages();
        f.problem.kv_dtype = FA4_E4M3;
        if (block >= 0) f.quantise(block);
        expect_the_cpus_bits(f);
        f.turn(22, paged ? FA4_ROTARY_HALVES : FA4_ROTARY_INTERLEAVED, FA4_F32);
        expect_the_cpus_bits(f);
        f.pack();
        expect_the_cpus_bits(f);
      }
    }
  }
}

// Of several rows a CTA, and of several CTAs a row.
TEST_P(AppendOnGpu, RowsOfEverySize) {
  expect_the_cpus_bits(Fixture(FA4_BF16, 1, 8, 8));
  expect_the_cpus_bits(Fixture(FA4_BF16, 8, 128, 128));
  Fixture wide(FA4_F16, 9, 256, 128);
  wide.turn(128, FA4_ROTARY_HALVES, FA4_F32);
  expect_the_cpus_bits(wide);
}

// New rows out of one fused tensor, a cache of heads side by side, a table that is a slice.
TEST_P(AppendOnGpu, Strides) {
  Fixture f(FA4_BF16);
  f.lay_on_pages();
  f.args.k_strides[0] = 2 * 160;
  f.args.k_strides[1] = 160, f.args.k_strides[2] = 40;  // every other row of a few
  f.problem.k_strides[0] = 6 * 80, f.problem.k_strides[1] = 40, f.problem.k_strides[2] = 240;
  f.problem.page_table_strides[0] = 7, f.problem.page_table_strides[1] = 1;
  expect_the_cpus_bits(f);
}

// Of each head, in the other order for the second one.
TEST_P(AppendOnGpu, TablesOfEachHead) {
  Fixture f(FA4_BF16);
  f.lay_on_pages();
  f.problem.page_table_heads = 2;
  const std::vector<int32_t> shared = f.table;
  f.table.clear();
  for (size_t b = 0; b < Fixture::kBatch; ++b) {
    for (const bool is_second : {false, true}) {
      for (size_t i = 0; i < 7; ++i) {
        const int32_t entry = shared[b * 7 + i];
        f.table.push_back(is_second && entry < 35 ? 34 - entry : entry);
      }
    }
  }
  expect_the_cpus_bits(f);
}

// What the CPU refuses: rows without a place are left out, entries are clamped.
TEST_P(AppendOnGpu, IndicesThatLieDoNoHarm) {
  Fixture f(FA4_BF16);
  const std::vector<Bytes> honest = run(f);
  f.positions = {-1, 33, 2147483647, -2147483647 - 1, 1};
  const std::vector<Bytes> got = run(f);
  const size_t sequence = honest[0].size() / Fixture::kBatch;
  for (const size_t b : {1u, 4u}) {
    EXPECT_EQ(std::memcmp(&got[0][b * sequence], &honest[0][b * sequence], sequence), 0) << b;
  }
  for (const size_t b : {2u, 3u}) {
    EXPECT_EQ(Bytes(&got[0][b * sequence], &got[0][b * sequence] + sequence),
              Bytes(sequence, 0x5a));
  }
  f.positions = {0, 33, 8, 12, 1};
  f.lay_on_pages();
  for (int32_t& entry : f.table) entry = entry % 2 == 0 ? -5 : 2147480000;
  f.turn(16, FA4_ROTARY_HALVES, FA4_F32);
  f.args.rotary_rows = 3;
  f.pack();
  f.starts = {5, -7, 2147483647, 3, 18, -1};
  run(f);  // the checker sees what lies outside
}

TEST_P(AppendOnGpu, RefusesWhatItCannotTake) {
  const fa4::Device device(GetParam());
  const auto refusal = [&](const std::function<void(Fixture&)>& change) -> std::string {
    Fixture f(FA4_BF16);
    change(f);
    try {
      f.append(device, true);
    } catch (const fa4::Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([](Fixture&) {}), "accepted");
  EXPECT_EQ(refusal([](Fixture& f) { f.args.k_strides[1] = 84, f.args.k_strides[2] = 40; }),
            "fa4_append: seqlen stride 84 of k is 168 bytes; accepted on a GPU: multiples of 16 "
            "bytes from 0 to 2^40");
  EXPECT_EQ(refusal([](Fixture& f) { f.args.rotary_dim = 2, f.turn(2, 2, 0); }),
            "rotary_pairs 2; accepted: 0 (halves), 1 (interleaved)");
  EXPECT_EQ(refusal([](Fixture& f) {
              f.turn(2, 0, 0);
              f.args.rotary_rows = 0;
            }),
            "fa4_append: rotary_rows 0; accepted on a GPU: 1 or more");
}

}  // namespace
