// mapa and getctarank ("Data Movement and Conversion Instructions"; PTX ISA 9.7.9.23, 9.7.9.24).
#include <fmt/format.h>

#include "emulator/isa/memory_ops.h"
#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

void check_shared(uint64_t address, int lane) {
  if (space_of(address) == Space::kSharedCluster) return;
  throw Trap{"out-of-bounds",
             fmt::format("generic address 0x{:x} is not in shared memory", address), lane};
}

// A rank that the cluster does not have is wrong only where the address is used: lanes that do not
// use it may ask.
template <class T, bool kGeneric>
Flow map(Exec& exec, const Insn& insn) {
  const T* a = exec.lanes<T>(insn.a);
  const uint32_t* b = exec.lanes<uint32_t>(insn.b);
  exec.each(exec.lanes<T>(insn.d), [&](int lane) {
    if (kGeneric) check_shared(a[lane], lane);
    return static_cast<T>((a[lane] & ~(T{0xFF} << kRankShift)) | T{b[lane] & 0xFF} << kRankShift);
  });
  return Flow::kNext;
}

template <class T, bool kGeneric>
Flow rank_of(Exec& exec, const Insn& insn) {
  const T* a = exec.lanes<T>(insn.a);
  exec.each(exec.lanes<uint32_t>(insn.d), [&](int lane) {
    if (kGeneric) check_shared(a[lane], lane);
    return static_cast<uint32_t>(a[lane] >> kRankShift) & 0xFF;
  });
  return Flow::kNext;
}

// The space and type, and which handler they choose: {generic, 32 or 64 bits}.
Type take_address_type(Decoder& decoder, bool* generic) {
  *generic = !decoder.take("shared::cluster");
  const Type type = decoder.need_type();
  decoder.finish();
  if (type != Type::kU32 && type != Type::kU64) decoder.fail("another type; accepted: .u32, .u64");
  if (*generic && type == Type::kU32) decoder.fail("a generic address of 32 bits; accepted: .u64");
  return type;
}

}  // namespace

void decode_mapa(Decoder& decoder, Insn& insn) {
  bool generic = false;
  const Type type = take_address_type(decoder, &generic);
  decoder.need_operands(3, 3);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, Type::kU32);
  insn.d = decoder.dest(0, type);
  insn.run = type == Type::kU32 ? map<uint32_t, false>
             : generic          ? map<uint64_t, true>
                                : map<uint64_t, false>;
}

void decode_getctarank(Decoder& decoder, Insn& insn) {
  bool generic = false;
  const Type type = take_address_type(decoder, &generic);
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, type);
  insn.d = decoder.dest(0, Type::kU32);
  insn.run = type == Type::kU32 ? rank_of<uint32_t, false>
             : generic          ? rank_of<uint64_t, true>
                                : rank_of<uint64_t, false>;
}

}  // namespace ptxemu
