// A decoded instruction: a handler and where its operands lie.
//
// Registers of a warp lie lane by lane: a Slot is a byte offset into the frame's storage, where 32
// values of the register's width stand side by side (64-byte aligned). A predicate is one uint32_t,
// a bit a lane. An immediate is a slot too, filled when the frame is made, so that a handler never
// asks what an operand is.
//
// How an instruction is added: docs/emulator_adding.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/sanitizers.h"
#include "emulator/parse/types.h"

// Debug and sanitizer builds compare every access to a slot with what was allocated there, and the
// type by which a handler asks for what was decoded with the one that was set.
#if !defined(NDEBUG) || defined(FA4_ADDRESS_SANITIZER)
#define PTXEMU_CHECK_SLOTS 1
#endif

namespace ptxemu {

struct Exec;
struct Insn;
struct InstructionRow;

using Slot = uint32_t;
inline constexpr Slot kNoSlot = ~Slot{0};
inline constexpr uint32_t kNoPc = ~uint32_t{0};

enum class Flow : uint8_t {
  kNext,     // the next instruction
  kJump,     // the handler has set group->pc
  kBlocked,  // not done: the handler is called again; group->wait says what for
  kExit,     // the lanes of exec.mask are done (the handler has called exit_lanes)
};

// Executes for the lanes of exec.mask, which is never 0. Throws Trap for what stops a kernel.
using Handler = Flow (*)(Exec& exec, const Insn& insn);

// What a family's decoder keeps for its handlers beside the operands, of a type of its own. A small
// one lies in the instruction, another with the function. Debug and sanitizer builds throw
// std::logic_error where it is asked for as another type.
class DecodedForm {
 public:
  template <class T>
  static constexpr bool kInside =
      sizeof(T) <= 16 && alignof(T) <= 8 && std::is_trivially_copyable_v<T>;

  template <class T>
  void set(const T& form) {
    static_assert(kInside<T>);
    std::memcpy(bytes_, &form, sizeof form);
    note_type<T>();
  }
  // Of one that lives as long as the instruction.
  template <class T>
  void refer(const T* form) {
    static_assert(!kInside<T>);
    std::memcpy(bytes_, &form, sizeof form);
    note_type<T>();
  }
  template <class T>
  const T& get() const {
#ifdef PTXEMU_CHECK_SLOTS
    require_type(&kTypeOf<T>);
#endif
    if constexpr (kInside<T>) return *std::launder(reinterpret_cast<const T*>(bytes_));
    return **std::launder(reinterpret_cast<const T* const*>(bytes_));
  }

 private:
  template <class T>
  static constexpr char kTypeOf = 0;  // its address stands for T
  template <class T>
  void note_type() {
#ifdef PTXEMU_CHECK_SLOTS
    type_ = &kTypeOf<T>;
#endif
  }

  alignas(8) std::byte bytes_[16] = {};
#ifdef PTXEMU_CHECK_SLOTS
  void require_type(const char* type) const;
  const char* type_ = nullptr;
#endif
};

struct Insn {
  Handler run = nullptr;
  Slot guard = kNoSlot;
  bool guard_negated = false;
  bool is_move = false;     // InstructionKind::kMov, for the counters
  bool is_private = false;  // ld, st: .local and .param, which are the thread's own
  uint16_t list_size = 0;
  Slot d = kNoSlot, a = kNoSlot, b = kNoSlot, c = kNoSlot;
  uint32_t statement = 0;  // its number in the kernel's code, from 1 on: a line may hold several
  DecodedForm decoded;
  const Slot* list = nullptr;   // vectors: list_size slots
  uint32_t reconverge = kNoPc;  // of a branch: where its lanes meet again
  uint32_t line = 0;            // of the PTX text
  uint32_t source = 0;          // index into CodeFunction::sources
  uint32_t pc = 0;
  const InstructionRow* row = nullptr;

  // What the family's decoder set (Decoder::set_form), of the type that it set.
  template <class T>
  const T& form() const {
    return decoded.get<T>();
  }
};

class Decoder;

// How bits that nobody has written pass through an instruction; the checker asks
// (observe/undefined_values.h).
enum class ValueFlow : uint8_t {
  kUses,   // it does something that depends on them
  kMoves,  // a bit of its result depends on some bits of its sources, wherever they are
  // The same of its first source, or its first two; the others say where bits come from and go to.
  kMovesOne,
  kMovesTwo,
  kConverts,  // as kMoves, and it depends on the value that they have
  kComputes,  // a word of its result depends on words of its sources
  kDecides,   // its whole result depends on all of its sources
};

// What the machine and the checker must know about an instruction beside its handler.
enum class InstructionKind : uint8_t {
  kOther,
  kMov,
  kLoad,   // ld, ldu
  kStore,  // st
  kCall,
  kShuffle,
  kWarpSync,     // bar.warp.sync
  kWgmma,        // wgmma.mma_async
  kWgmmaSync,    // wgmma.fence, wgmma.commit_group
  kWgmmaWait,    // wgmma.wait_group
  kTmemAlloc,    // tcgen05.alloc
  kTmemRelease,  // tcgen05.dealloc, relinquish_alloc_permit
};

// One mnemonic: its fixed leading words ("cp.async.bulk.tensor"), how the rest is decoded, and the
// section of the PTX ISA manual (title) that says what it does. The row with the most leading words
// that match wins.
struct InstructionRow {
  std::string_view mnemonic;
  void (*decode)(Decoder& decoder, Insn& insn);
  std::string_view section;
  ValueFlow flow = ValueFlow::kUses;
  InstructionKind kind = InstructionKind::kOther;
};

// The return that ends a function has no row: it stands for no statement.
inline InstructionKind kind_of(const Insn& insn) {
  return insn.row == nullptr ? InstructionKind::kOther : insn.row->kind;
}

// Of an ld or st: the bytes that one register of its list gets or gives, its lowest
// (isa/memory.cc).
uint32_t stored_bytes(const Insn& insn);

// Every family's rows; isa/table.cc joins them.
std::span<const InstructionRow> integer_rows();
std::span<const InstructionRow> float_rows();
std::span<const InstructionRow> convert_rows();
std::span<const InstructionRow> move_rows();
std::span<const InstructionRow> memory_rows();
std::span<const InstructionRow> atomic_rows();
std::span<const InstructionRow> mbarrier_rows();
std::span<const InstructionRow> fence_rows();
std::span<const InstructionRow> async_copy_rows();
std::span<const InstructionRow> tma_rows();
std::span<const InstructionRow> control_rows();
std::span<const InstructionRow> barrier_rows();
std::span<const InstructionRow> warp_rows();
std::span<const InstructionRow> launch_control_rows();
std::span<const InstructionRow> tensor_memory_rows();
std::span<const InstructionRow> tensor_core_rows();
std::span<const InstructionRow> wgmma_rows();
std::span<const InstructionRow> mma_rows();

// All of them.
std::span<const InstructionRow> all_rows();

// The row of a statement's words, and how many words it covers; null when no mnemonic matches.
const InstructionRow* find_row(std::span<const std::string_view> words, size_t* covered);

}  // namespace ptxemu
