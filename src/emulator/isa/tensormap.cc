// tensormap.replace, tensormap.cp_fenceproxy (PTX ISA 9.7.9.28, 9.7.13.16) and the operands that
// name tensor maps.
#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/tensor_map_operand.h"

namespace ptxemu {
namespace {

constexpr uint32_t kMapBytes = TensorMap::kBytes;

enum class Field : uint8_t {
  kNone,
  kAddress,
  kRank,
  kBox,
  kDim,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kAtomicity,
  kFill,
};

struct Replacement {
  MemoryOperand map;
  Field field = Field::kNone;
  uint32_t ordinal = 0;
  Slot value = kNoSlot;
  bool wide = false;
};

void set_bits(uint32_t* word, uint32_t low, uint32_t count, uint64_t value) {
  const uint32_t mask = ((1u << count) - 1) << low;
  *word = (*word & ~mask) | (static_cast<uint32_t>(value) << low & mask);
}

// Edits the hardware's words in place, so that fields which are unset so far need no valid value.
void replace(uint32_t* w, const Replacement& change, uint64_t value) {
  const uint32_t d = change.ordinal;
  switch (change.field) {
    case Field::kAddress:
      w[0] = static_cast<uint32_t>(value);
      w[1] = static_cast<uint32_t>(value >> 32);
      break;
    case Field::kRank: set_bits(&w[2], 4, 3, value); break;
    case Field::kBox:
      if (d == 0) {
        set_bits(&w[13], 24, 8, value - 1);
      } else {
        set_bits(&w[14], 8 * (d - 1), 8, value - 1);
      }
      break;
    case Field::kDim: w[8 + d] = static_cast<uint32_t>(value - 1); break;
    case Field::kStride:
      // Ordinal 0 is the stride of dimension 1.
      w[3 + d] = static_cast<uint32_t>(value >> 4);
      set_bits(&w[7], 4 * d, 4, value >> 36);
      break;
    case Field::kElementStride: set_bits(&w[13], 3 * d, 3, value - 1); break;
    case Field::kType:
      // tf32 and tf32.ftz are f32 and f32.ftz with bit 16.
      set_bits(&w[2], 7, 4, value >= 11 ? value - 4 : value);
      set_bits(&w[2], 16, 1, value >= 11);
      break;
    case Field::kInterleave: set_bits(&w[2], 11, 2, value); break;
    case Field::kSwizzle: set_bits(&w[2], 13, 2, value); break;
    case Field::kFill: set_bits(&w[2], 15, 1, value); break;
    case Field::kAtomicity: set_bits(&w[2], 19, 1, value); break;
    case Field::kNone: break;
  }
}

Flow run_replace(Exec& exec, const Insn& insn) {
  const Replacement& change = insn.form<Replacement>();
  LaneHosts hosts;
  access_lanes(exec, insn, change.map, &hosts);
  exec.for_lanes([&](int lane) {
    std::byte* host = hosts.at[lane];
    uint32_t words[kMapBytes / 4];
    std::memcpy(words, host, kMapBytes);
    replace(words, change,
            change.wide ? exec.lanes<uint64_t>(change.value)[lane]
                        : exec.lanes<uint32_t>(change.value)[lane]);
    std::memcpy(host, words, kMapBytes);
  });
  return Flow::kNext;
}

struct MapCopy {
  MemoryOperand to, from;
};

Flow run_copy(Exec& exec, const Insn& insn) {
  const MapCopy& copy = insn.form<MapCopy>();
  exec.require_converged(insn);
  // All lanes copy the same map.
  Exec one = exec;
  one.mask = exec.mask & -exec.mask;
  LaneHosts to, from;
  access_lanes(one, insn, copy.from, &from);
  access_lanes(one, insn, copy.to, &to);
  std::memcpy(to.at[one.first_lane()], from.at[one.first_lane()], kMapBytes);
  exec.tell(&Observer::fence, insn, {.kind = FenceKind::kProxyTensorMap, .acquires = false});
  return Flow::kNext;
}

Field take_field(Decoder& decoder) {
  const Field field = decoder.take_one<Field>({{"global_address", Field::kAddress},
                                               {"rank", Field::kRank},
                                               {"box_dim", Field::kBox},
                                               {"global_dim", Field::kDim},
                                               {"global_stride", Field::kStride},
                                               {"element_stride", Field::kElementStride},
                                               {"elemtype", Field::kType},
                                               {"interleave_layout", Field::kInterleave},
                                               {"swizzle_mode", Field::kSwizzle},
                                               {"swizzle_atomicity", Field::kAtomicity},
                                               {"fill_mode", Field::kFill}},
                                              Field::kNone);
  if (field == Field::kNone)
    decoder.fail(
        "tensormap.replace without a field; accepted: .global_address, .rank, .box_dim, "
        ".global_dim, .global_stride, .element_stride, .elemtype, .interleave_layout, "
        ".swizzle_mode, .swizzle_atomicity, .fill_mode");
  return field;
}

// The values of table 33 that are modelled.
void check_value(Decoder& decoder, Field field, int64_t value) {
  const auto limit = [&](int64_t most, const char* what) {
    if (value < 0 || value > most) {
      decoder.fail(fmt::format("{} {} is not modelled; accepted: 0 to {}", what, value, most));
    }
  };
  switch (field) {
    case Field::kType: return limit(kTensorTypes - 1, "elemtype");
    case Field::kInterleave: return limit(2, "interleave_layout");
    case Field::kSwizzle: return limit(3, "swizzle_mode");
    case Field::kAtomicity: return limit(0, "swizzle_atomicity");
    case Field::kFill: return limit(1, "fill_mode");
    default: return;
  }
}

}  // namespace

Address tensor_map_address(Decoder& decoder, const Operand& base) {
  Address address = decoder.address(base);
  if (base.kind == Operand::Kind::kRegister) address.offset += static_cast<int64_t>(base.integer);
  if (base.kind == Operand::Kind::kParameter) address.offset += static_cast<int64_t>(kParamWindow);
  return address;
}

TensorMap read_tensor_map(const Exec& exec, const Insn& insn, const Address& address, int lane) {
  const uint64_t at = lane_address(exec, address.base, address.wide, address.offset, lane);
  const std::byte* host =
      resolve(exec, lane, Space::kGeneric, at, kMapBytes, AccessKind::kRead, 64);
  if (space_of(at) == Space::kGlobal) exec.tell(&Observer::tensor_map_read, insn, at);
  TensorMap map;
  std::string why;
  if (!TensorMap::decode(host, &map, &why)) {
    throw Trap{"bad-tensor-map", fmt::format("the tensor map at 0x{:x}: {}", at, why), lane};
  }
  // A kernel may have edited it, or made it up.
  if (why = map.check(); !why.empty()) {
    throw Trap{"bad-tensor-map", fmt::format("the tensor map at 0x{:x}: {}", at, why), lane};
  }
  return map;
}

void decode_tensormap_replace(Decoder& decoder, Insn& insn) {
  Replacement change;
  if (!decoder.take("tile")) decoder.fail("tensormap.replace without .tile; accepted: .tile");
  change.field = take_field(decoder);
  change.map.space = decoder.take_space();
  change.map.bytes = kMapBytes;
  change.map.reads = change.map.writes = true;
  if (!decoder.take("b1024")) decoder.fail("tensormap.replace without .b1024; accepted: .b1024");
  const Type type = decoder.need_type();
  decoder.finish();
  const bool wide = change.field == Field::kAddress || change.field == Field::kStride;
  if (type != (wide ? Type::kB64 : Type::kB32)) {
    decoder.fail("another type; accepted: .b64 for global_address and global_stride, else .b32");
  }
  const bool has_ordinal = change.field >= Field::kBox && change.field <= Field::kElementStride;
  decoder.need_operands(has_ordinal ? 3 : 2, has_ordinal ? 3 : 2);
  change.map.address = decoder.address(0);
  if (has_ordinal) {
    const int64_t ordinal = decoder.constant(1);
    const int64_t most = change.field == Field::kStride ? 3 : 4;
    if (ordinal < 0 || ordinal > most) {
      decoder.fail_syntax(fmt::format("ordinal {}: 0 to {} are accepted", ordinal, most));
    }
    change.ordinal = static_cast<uint32_t>(ordinal);
  }
  const size_t last = decoder.operand_count() - 1;
  if (change.field >= Field::kType) {
    check_value(decoder, change.field, decoder.constant(last));
  }
  change.value = decoder.source(last, type);
  change.wide = wide;
  decoder.set_form(insn, change);
  insn.run = run_replace;
}

void decode_tensormap_copy(Decoder& decoder, Insn& insn) {
  MapCopy copy;
  copy.to.space = decoder.take_space();
  copy.from.space = decoder.take_space();
  if (copy.to.space != Space::kGlobal || copy.from.space != Space::kShared) {
    decoder.fail("tensormap.cp_fenceproxy between other spaces; accepted: .global.shared::cta");
  }
  for (std::string_view word : {"tensormap::generic", "release", "sync", "aligned"}) {
    if (!decoder.take(word))
      decoder.fail(fmt::format("tensormap.cp_fenceproxy without .{0}; accepted: .{0}", word));
  }
  if (decoder.take_one<int>({{"cta", 1}, {"cluster", 2}, {"gpu", 3}, {"sys", 4}}, 0) == 0) {
    decoder.fail("tensormap.cp_fenceproxy without a scope; accepted: .cta, .cluster, .gpu, .sys");
  }
  decoder.finish();
  decoder.need_operands(3, 3);
  copy.to.address = decoder.address(0);
  copy.from.address = decoder.address(1);
  if (decoder.constant(2) != kMapBytes) decoder.fail_syntax("another size; accepted: 128");
  copy.to.bytes = copy.from.bytes = kMapBytes;
  copy.to.writes = copy.from.reads = true;
  decoder.set_form(insn, copy);
  insn.run = run_copy;
}

}  // namespace ptxemu
