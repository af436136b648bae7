#include "io/tensor_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "failure.h"
#include "io/convert.h"
#include "io/tensor_writer.h"
#include "scratch_folder.h"
#include "verify/random.h"

namespace fa4::cli {
namespace {

using fa4::internal::DType;
using fa4::internal::Random;

std::string npy(const NamedTensor& tensor) {
  std::string bytes;
  write_npy(tensor, [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  });
  return bytes;
}

std::string safetensors(const std::vector<NamedTensor>& tensors) {
  std::string bytes;
  write_safetensors(tensors, [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  });
  return bytes;
}

using TensorFile = ScratchFolder;

TEST_F(TensorFile, NpyComesBack) {
  const std::vector<float> values = {1, -2, 3.5f, 0, 1e-30f, 7};
  write("a.npy", npy({"", FileType::kF32, {2, 3}, values.data()}));
  const FileTensor tensor = read_tensor(path("a.npy"));
  EXPECT_EQ(tensor.type, FileType::kF32);
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(as_floats(tensor, std::nullopt), values);
}

// An error message lists the first eight dimensions of a shape; a file holds them all, in a header
// whose length may need more than the two bytes of version 1.
TEST_F(TensorFile, NpyOfManyDimensionsComesBack) {
  const float value = 3.5f;
  for (const size_t rank : {0, 1, 8, 9, 32, 40000}) {
    const std::vector<int64_t> shape(rank, 1);
    write("a.npy", npy({"", FileType::kF32, shape, &value}));
    EXPECT_EQ(read_tensor(path("a.npy")).shape, shape);
  }
}

TEST_F(TensorFile, Bf16InNpyIsWidened) {
  const uint16_t bits[] = {0x3f80, 0xc000, 0x7f80};
  write("a.npy", npy({"", FileType::kBF16, {3}, bits}));
  const FileTensor tensor = read_tensor(path("a.npy"));
  EXPECT_EQ(tensor.type, FileType::kF32);
  EXPECT_EQ(as_floats(tensor, std::nullopt), (std::vector<float>{1, -2, HUGE_VALF}));
}

TEST_F(TensorFile, SafetensorsComeBack) {
  const uint16_t bits[] = {0x3f80, 0xc000};
  const float values[] = {1, 2, 3};
  write("a.safetensors", safetensors({{"x", FileType::kBF16, {2}, bits},
                                      {"a \"quoted\" name", FileType::kF32, {3, 1}, values}}));
  const FileTensor x = read_tensor(path("a.safetensors:x"));
  EXPECT_EQ(x.type, FileType::kBF16);
  EXPECT_EQ(as_doubles(x, std::nullopt), (std::vector<double>{1, -2}));
  const FileTensor y = read_tensor(path("a.safetensors:a \"quoted\" name"));
  EXPECT_EQ(y.shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(as_doubles(y, std::nullopt), (std::vector<double>{1, 2, 3}));
}

TEST_F(TensorFile, TheLastMarkSplits) {
  const TensorPath path = parse_tensor_path("a.safetensors:b/c.safetensors:d");
  EXPECT_EQ(path.file, "a.safetensors:b/c.safetensors");
  EXPECT_EQ(path.name, "d");
}

TEST_F(TensorFile, CountsDoNotOverflow) {
  EXPECT_EQ(count_elements({}, 4), 1);
  EXPECT_EQ(count_elements({1LL << 40, 1LL << 40}, 4), -1);
  EXPECT_EQ(count_elements({1LL << 40, 0, 4}, 4), 0);
  EXPECT_EQ(count_elements({1LL << 40, 0, 1LL << 40}, 4), -1);
  EXPECT_EQ(count_elements({-1}, 4), -1);
  EXPECT_EQ(count_elements({1LL << 60}, 8), -1);
}

// Damage anywhere is refused or harmless: never a crash, never a read past the file (asan).
TEST_F(TensorFile, DamagedFilesAreRefusedOrRead) {
  std::vector<float> values(24, 1.5f);
  const std::string good[] = {npy({"", FileType::kF32, {2, 3, 4}, values.data()}),
                              safetensors({{"x", FileType::kF32, {3, 4}, values.data()},
                                           {"y", FileType::kF16, {24}, values.data()}})};
  Random random(11);
  int refused = 0, read = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = good[round % 2];
    for (int64_t n = random.between(1, 3); n > 0; --n) {
      const size_t at =
          static_cast<size_t>(random.between(0, static_cast<int64_t>(bytes.size()) - 1));
      switch (random.between(0, 3)) {
        case 0: bytes[at] = static_cast<char>(random.bits()); break;
        case 1: bytes[at] = "0123456789,:{}[]()'\""[random.between(0, 19)]; break;
        case 2: bytes.erase(at, static_cast<size_t>(random.between(1, 40))); break;
        default: bytes.insert(at, 1, static_cast<char>(random.bits()));
      }
      if (bytes.empty()) bytes = "x";
    }
    const std::string file = write(round % 2 == 0 ? "f.npy" : "f.safetensors", bytes);
    try {
      const FileTensor tensor = read_tensor(round % 2 == 0 ? file : file + ":x");
      const std::vector<unsigned char> copy(
          tensor.data,
          tensor.data + tensor.elements() * static_cast<int64_t>(size_of(tensor.type)));
      ++read;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), kBadInput);
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(read, 50);
}

TEST_F(TensorFile, IndicesMustFit) {
  const FileTensor tensor{
      FileType::kI64, {1}, reinterpret_cast<const unsigned char*>("\0\0\0\0\1\0\0\0"), nullptr};
  EXPECT_THROW(as_indices(tensor), Failure);
}

TEST_F(TensorFile, TypesFollowTheRules) {
  const auto type_of = [](FileType type, std::optional<DType> asked) {
    return element_type({type, {}, nullptr, nullptr}, asked);
  };
  EXPECT_EQ(type_of(FileType::kF16, std::nullopt), DType::kF16);
  EXPECT_EQ(type_of(FileType::kBF16, std::nullopt), DType::kBF16);
  EXPECT_EQ(type_of(FileType::kF64, DType::kBF16), DType::kBF16);
  EXPECT_EQ(type_of(FileType::kBits16, DType::kBF16), DType::kBF16);
  EXPECT_THROW(type_of(FileType::kBits16, std::nullopt), Failure);
  EXPECT_THROW(type_of(FileType::kBits16, DType::kF32), Failure);
  EXPECT_THROW(type_of(FileType::kF64, std::nullopt), Failure);
  EXPECT_THROW(type_of(FileType::kI32, DType::kF32), Failure);
}

}  // namespace
}  // namespace fa4::cli
