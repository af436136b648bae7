// Between the address of a state space and the generic address ("Data Movement and Conversion
// Instructions": cvta, isspacep; PTX ISA 9.7.9.19, 9.7.9.20). Windows are those of
// machine/memory.h.
#include <iterator>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/lanes.h"
#include "emulator/machine/memory.h"

namespace ptxemu {
namespace {

constexpr uint64_t kInWindow = ~kWindowMask;

struct Window {
  uint64_t keep, base;
};

// d = (a & keep) | base.
template <class D, class A>
struct Convert {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const A* a = exec.lanes<A>(insn.a);
    const uint64_t keep = insn.form<Window>().keep, base = insn.form<Window>().base;
    each_lane(exec.mask, exec.lanes<D>(insn.d), [=](int i) PTXEMU_LAMBDA {
      return static_cast<D>((static_cast<uint64_t>(a[i]) & keep) | base);
    });
  }
};

Window window_of(const Decoder& decoder, Space space) {
  switch (space) {
    case Space::kGlobal:
    case Space::kConst: return {~uint64_t{0}, 0};
    case Space::kShared:
    case Space::kSharedCluster: return {0xffffffff, kSharedWindow};
    case Space::kLocal: return {kInWindow, kLocalWindow};
    case Space::kParam: return {kInWindow, kParamWindow};
    default:
      decoder.fail(
          "cvta without a state space; accepted: .global, .const, .shared, .local, .param");
  }
}

void decode_cvta(Decoder& decoder, Insn& insn) {
  const bool to = decoder.take("to");
  const Window window = window_of(decoder, decoder.take_space());
  const Type type = decoder.need_type();
  if (type != Type::kU64 && type != Type::kU32)
    decoder.fail("cvta of another type; accepted: .u32, .u64");
  if (type == Type::kU32 && !to && window.base != 0) {
    decoder.fail("a generic address of 32 bits; accepted: .u64");
  }
  operands_1(decoder, insn, type);
  decoder.set_form(insn, Window{window.keep, to ? 0 : window.base});
  insn.run = type == Type::kU64 ? handler<Convert<uint64_t, uint64_t>>()
                                : handler<Convert<uint32_t, uint32_t>>();
}

// Whether one of the module's .const variables lies there.
bool is_constant(const Exec& exec, uint64_t address) {
  const auto& constants = exec.launch->code->constants;
  const auto next = constants.upper_bound(address);
  if (next == constants.begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return address - begin < bytes;
}

struct SpaceTest {
  Space space;
};

struct IsSpace {
  static void run(const Exec& exec, const Insn& insn) {
    const auto* a = exec.lanes<uint64_t>(insn.a);
    const Space space = insn.form<SpaceTest>().space;
    uint32_t found = 0;
    for (int i = 0; i < 32; ++i) {
      if (is_in(exec, space, a[i])) found |= 1u << i;
    }
    exec.set_predicate(insn.d, found);
  }
  static bool is_in(const Exec& exec, Space space, uint64_t address) {
    const uint64_t window = address & kWindowMask;
    switch (space) {
      case Space::kShared:
        return window == kSharedWindow && (address & kInWindow) >> kRankShift == exec.cta->rank;
      case Space::kSharedCluster: return window == kSharedWindow;
      case Space::kLocal: return window == kLocalWindow;
      case Space::kParam: return window == kParamWindow;
      case Space::kConst: return is_constant(exec, address);
      // The kernel's parameters lie in the global window, constants do not.
      default:
        return window != kSharedWindow && window != kLocalWindow && !is_constant(exec, address);
    }
  }
};

void decode_isspacep(Decoder& decoder, Insn& insn) {
  const Space space = decoder.take_space();
  if (space == Space::kGeneric)
    decoder.fail(
        "isspacep without a state space; accepted: .global, .const, .shared, .local, .param");
  decoder.need_operands(2, 2);
  decoder.set_form(insn, SpaceTest{space});
  insn.a = decoder.source(1, Type::kU64);
  insn.d = decoder.dest(0, Type::kPred);
  insn.run = plain_handler<IsSpace>();
}

constexpr InstructionRow kRows[] = {
    {"cvta", decode_cvta, "Data Movement and Conversion Instructions: cvta", ValueFlow::kComputes},
    {"isspacep", decode_isspacep, "Data Movement and Conversion Instructions: isspacep"},
};

}  // namespace

std::span<const InstructionRow> address_rows() { return kRows; }

}  // namespace ptxemu
