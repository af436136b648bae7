#include "emulator/parse/types.h"

#include <algorithm>

namespace ptxemu {
namespace {

enum class Class : uint8_t { kNone, kUntyped, kUnsigned, kSigned, kFloat };

struct Row {
  Type type;
  std::string_view name;
  uint8_t bits;
  Class what;
};

// In the order of the enumeration, so that a type is its row's index.
constexpr Row kRows[] = {
    {Type::kNone, "", 0, Class::kNone},
    {Type::kPred, "pred", 1, Class::kNone},
    {Type::kB8, "b8", 8, Class::kUntyped},
    {Type::kB16, "b16", 16, Class::kUntyped},
    {Type::kB32, "b32", 32, Class::kUntyped},
    {Type::kB64, "b64", 64, Class::kUntyped},
    {Type::kB128, "b128", 128, Class::kUntyped},
    {Type::kU8, "u8", 8, Class::kUnsigned},
    {Type::kU16, "u16", 16, Class::kUnsigned},
    {Type::kU32, "u32", 32, Class::kUnsigned},
    {Type::kU64, "u64", 64, Class::kUnsigned},
    {Type::kS8, "s8", 8, Class::kSigned},
    {Type::kS16, "s16", 16, Class::kSigned},
    {Type::kS32, "s32", 32, Class::kSigned},
    {Type::kS64, "s64", 64, Class::kSigned},
    {Type::kF16, "f16", 16, Class::kFloat},
    {Type::kF16x2, "f16x2", 32, Class::kFloat},
    {Type::kBF16, "bf16", 16, Class::kFloat},
    {Type::kBF16x2, "bf16x2", 32, Class::kFloat},
    {Type::kTF32, "tf32", 32, Class::kFloat},
    {Type::kF32, "f32", 32, Class::kFloat},
    {Type::kF32x2, "f32x2", 64, Class::kFloat},
    {Type::kF64, "f64", 64, Class::kFloat},
    {Type::kU8x4, "u8x4", 32, Class::kUnsigned},
    {Type::kS8x4, "s8x4", 32, Class::kSigned},
    {Type::kU16x2, "u16x2", 32, Class::kUnsigned},
    {Type::kS16x2, "s16x2", 32, Class::kSigned},
    {Type::kE4M3, "e4m3", 8, Class::kFloat},
    {Type::kE5M2, "e5m2", 8, Class::kFloat},
    {Type::kE4M3x2, "e4m3x2", 16, Class::kFloat},
    {Type::kE5M2x2, "e5m2x2", 16, Class::kFloat},
    {Type::kE4M3x4, "e4m3x4", 32, Class::kFloat},
    {Type::kE5M2x4, "e5m2x4", 32, Class::kFloat},
    {Type::kE2M1x2, "e2m1x2", 8, Class::kFloat},
    {Type::kE2M3x2, "e2m3x2", 16, Class::kFloat},
    {Type::kE3M2x2, "e3m2x2", 16, Class::kFloat},
    {Type::kUE8M0x2, "ue8m0x2", 16, Class::kFloat},
    {Type::kUE8M0, "ue8m0", 8, Class::kFloat},
    {Type::kE2M1, "e2m1", 4, Class::kFloat},
    {Type::kE2M3, "e2m3", 6, Class::kFloat},
    {Type::kE3M2, "e3m2", 6, Class::kFloat},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].type) != i) return false;
  }
  return true;
}
static_assert(in_order() && std::size(kRows) == static_cast<size_t>(Type::kE3M2) + 1);

const Row& row(Type type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

int bits_of(Type type) { return row(type).bits; }
bool is_signed(Type type) { return row(type).what == Class::kSigned; }
bool is_integer(Type type) {
  return row(type).what == Class::kSigned || row(type).what == Class::kUnsigned;
}
bool is_float(Type type) { return row(type).what == Class::kFloat; }
std::string_view name_of(Type type) { return row(type).name; }

Type type_of(std::string_view name) {
  if (name.empty()) return Type::kNone;
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& r) { return r.name == name; });
  return found == std::end(kRows) ? Type::kNone : found->type;
}

std::string_view name_of(Space space) {
  constexpr std::string_view kNames[] = {"generic", "reg",   "const",  "global",
                                         "local",   "param", "shared", "shared::cluster"};
  return kNames[static_cast<size_t>(space)];
}

}  // namespace ptxemu
