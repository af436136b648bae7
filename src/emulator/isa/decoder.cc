#include "emulator/isa/decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "emulator/error.h"
#include "emulator/isa/builder.h"
#include "emulator/isa/special.h"
#include "emulator/parse/lexer.h"

namespace ptxemu {
namespace {

// A vector that the function owns.
struct KeptSlots {
  std::vector<Slot> slots;
};

// What an immediate is when it fills a register of `type` ("Constants"; PTX ISA 4.5).
uint64_t float_bits(const Operand& operand, Type type) {
  if (bits_of(type) == 64) {
    return type == Type::kB64 && operand.is_single ? operand.integer
                                                   : std::bit_cast<uint64_t>(operand.real);
  }
  return operand.is_single ? operand.integer
                           : std::bit_cast<uint32_t>(static_cast<float>(operand.real));
}

int slot_bits(Type type) {
  const int bits = bits_of(type);
  return type == Type::kPred ? 1 : bits <= 16 ? 16 : bits;
}

}  // namespace

Decoder::Decoder(FunctionBuilder& builder, const Statement& statement, const InstructionRow& row,
                 size_t covered_words)
    : builder_(builder),
      statement_(statement),
      row_(row),
      covered_(covered_words),
      taken_(statement.words.size() - covered_words, false) {}

void Decoder::fail(const std::string& why) const {
  throw Error(ErrorCode::kUnknownForm, statement_.line, statement_error(why, statement_.text));
}

void Decoder::fail_type(Type type, std::string_view accepted) const {
  fail(fmt::format(".{} is no type that {} takes here; accepted: {}", name_of(type), row_.mnemonic,
                   accepted));
}

void Decoder::fail_second(std::string_view word) const {
  fail(fmt::format(".{} beside another of its kind; accepted: one of them", word));
}

void Decoder::fail_syntax(const std::string& why) const {
  throw Error(ErrorCode::kSyntax, statement_.line, statement_error(why, statement_.text));
}

// --- Qualifiers -----------------------------------------------------------------------------

std::span<const std::string_view> Decoder::qualifiers() const {
  return std::span(statement_.words).subspan(covered_);
}

bool Decoder::take(std::string_view word) {
  const auto words = qualifiers();
  for (size_t i = 0; i < words.size(); ++i) {
    if (taken_[i] || words[i] != word) continue;
    taken_[i] = true;
    return true;
  }
  asked_.push_back(word);
  return false;
}

bool Decoder::has(std::string_view word) const {
  const auto left = untaken();
  return std::find(left.begin(), left.end(), word) != left.end();
}

Type Decoder::take_type() {
  const auto words = qualifiers();
  for (size_t i = 0; i < words.size(); ++i) {
    if (taken_[i]) continue;
    const Type type = type_of(words[i]);
    if (type == Type::kNone) continue;
    taken_[i] = true;
    return type;
  }
  return Type::kNone;
}

Type Decoder::need_type() {
  const Type type = take_type();
  if (type == Type::kNone)
    fail(fmt::format("{} without a type; accepted: one such as .b32, where the manual lists them",
                     row_.mnemonic));
  return type;
}

Space Decoder::take_space() {
  static constexpr std::pair<std::string_view, Space> kSpaces[] = {
      {"global", Space::kGlobal},      {"shared", Space::kShared},
      {"shared::cta", Space::kShared}, {"shared::cluster", Space::kSharedCluster},
      {"local", Space::kLocal},        {"param", Space::kParam},
      {"param::entry", Space::kParam}, {"param::func", Space::kParam},
      {"const", Space::kConst},
  };
  const auto words = qualifiers();
  for (size_t i = 0; i < words.size(); ++i) {
    if (taken_[i]) continue;
    for (const auto& [word, space] : kSpaces) {
      if (words[i] != word) continue;
      taken_[i] = true;
      return space;
    }
  }
  for (const auto& [word, space] : kSpaces) asked_.push_back(word);
  return Space::kGeneric;
}

std::vector<std::string_view> Decoder::untaken() const {
  std::vector<std::string_view> left;
  const auto words = qualifiers();
  for (size_t i = 0; i < words.size(); ++i) {
    if (!taken_[i]) left.push_back(words[i]);
  }
  return left;
}

void Decoder::finish() const {
  const auto left = untaken();
  if (left.empty()) return;
  std::vector<std::string_view> others;
  for (const std::string_view word : asked_) {
    if (std::find(others.begin(), others.end(), word) == others.end()) others.push_back(word);
  }
  fail(fmt::format(".{} is no qualifier that {} takes here; accepted: {}{}",
                   parse::excerpt(left.front()), row_.mnemonic, others.empty() ? "none" : ".",
                   fmt::join(others, ", .")));
}

// --- Operands -------------------------------------------------------------------------------

const Operand& Decoder::operand(size_t i) const {
  if (i >= statement_.operands.size()) {
    const size_t count = statement_.operands.size();
    fail_syntax(fmt::format("{} operands; accepted: more than {}, as {} takes here", count, count,
                            row_.mnemonic));
  }
  return statement_.operands[i];
}

void Decoder::need_operands(size_t least, size_t most) const {
  const size_t count = operand_count();
  if (count >= least && count <= most) return;
  fail_syntax(fmt::format("{} operands; accepted: {}{}, as {} takes here", count, least,
                          least == most ? "" : fmt::format(" to {}", most), row_.mnemonic));
}

Slot Decoder::constant_slot(uint64_t value, int bits) {
  return builder_.constant(value, bits == 1 ? 1 : bits <= 16 ? 16 : bits);
}

// Registers may be wider or narrower than `type`, but a predicate is one bit a lane and lies like
// nothing else.
Slot Decoder::used_register(const Operand& operand, Type type, bool written, int* bits) {
  const Slot slot = builder_.register_slot(operand.index);
  *bits = slot_bits(builder_.register_at(operand.index).type);
  if ((*bits == 1) != (type == Type::kPred)) {
    fail_syntax(*bits == 1 ? fmt::format("a predicate; accepted: a register for {}", name_of(type))
                           : fmt::format("a register of {} bits; accepted: a predicate", *bits));
  }
  builder_.use(slot, FunctionBuilder::slot_bytes(*bits), written);
  return slot;
}

Slot Decoder::source_any(const Operand& operand, Type type, int* bits) {
  using Kind = Operand::Kind;
  *bits = slot_bits(type);
  switch (operand.kind) {
    case Kind::kRegister: {
      if (operand.negated)
        fail_syntax("! before an operand that is not negated; accepted: the register alone");
      return used_register(operand, type, false, bits);
    }
    case Kind::kInteger:
      if (type == Type::kPred) return builder_.constant(operand.integer == 0 ? 0 : 1, 1);
      if (is_float(type))
        fail_syntax("an integer; accepted: a floating-point number or a register");
      return builder_.constant(operand.integer, *bits);
    case Kind::kFloat:
      if (is_integer(type) || (bits_of(type) != 32 && bits_of(type) != 64)) {
        fail_syntax(fmt::format(
            "a floating-point number for {}; accepted: an integer or a register", name_of(type)));
      }
      return builder_.constant(float_bits(operand, type), *bits);
    case Kind::kSpecial: {
      const SpecialName special = special_register(operand.text);
      if (special.reg == SpecialRegister::kCount) {
        fail(fmt::format(
            "special register %{} is not known; accepted: one with its component, such as %tid.x",
            operand.text));
      }
      if (special.reg >= SpecialRegister::kClock) {
        fail(fmt::format("%{} in another instruction; accepted: in mov", operand.text));
      }
      if ((row_.mnemonic != "mov" && row_.mnemonic != "cvt") || is_float(type)) {
        fail(fmt::format("%{}, a special register, in another instruction; accepted: in mov, cvt",
                         operand.text));
      }
      return builder_.constant(static_cast<uint64_t>(special.reg), *bits,
                               ConstantSlot::Base::kSpecial);
    }
    case Kind::kVariable:
    case Kind::kParameter:
    case Kind::kResult:
    case Kind::kFunction: {
      const auto symbol = builder_.address_of(operand);
      return builder_.constant(symbol.value + operand.integer, *bits, symbol.base);
    }
    default: break;
  }
  fail_syntax(
      "an operand that is no value; accepted: a register, constant, variable or special register");
}

void Decoder::check_width(int bits, Type type) const {
  if (bits == slot_bits(type)) return;
  fail_syntax(fmt::format("a register of {} bits; accepted: one of {} bits, for {}", bits,
                          slot_bits(type), name_of(type)));
}

Slot Decoder::source(const Operand& operand, Type type) {
  int bits = 0;
  const Slot slot = source_any(operand, type, &bits);
  check_width(bits, type);
  return slot;
}

Slot Decoder::dest_any(const Operand& operand, Type type, int* bits) {
  *bits = slot_bits(type);
  if (operand.kind == Operand::Kind::kSink) return builder_.sink(*bits);
  if (operand.kind != Operand::Kind::kRegister || operand.negated) {
    fail_syntax("a destination that is no register; accepted: a register, _");
  }
  return used_register(operand, type, true, bits);
}

Slot Decoder::dest(const Operand& operand, Type type) {
  int bits = 0;
  const Slot slot = dest_any(operand, type, &bits);
  check_width(bits, type);
  return slot;
}

Slot Decoder::dest_or_none(const Operand& operand, Type type) {
  return operand.kind == Operand::Kind::kSink ? kNoSlot : dest(operand, type);
}

Slot Decoder::scratch(Type type) { return builder_.allocate(slot_bits(type)); }

Slot Decoder::predicate(const Operand& operand, bool* negated) {
  *negated = operand.negated;
  if (operand.kind != Operand::Kind::kRegister) return source(operand, Type::kPred);
  Operand plain = operand;
  plain.negated = false;
  return source(plain, Type::kPred);
}

Address Decoder::address(const Operand& operand) {
  using Kind = Operand::Kind;
  const bool bracketed = operand.kind == Kind::kAddress;
  if (bracketed && operand.list.empty())
    fail_syntax("an address without a base; accepted: a register, variable, parameter or constant");
  const Operand& base = bracketed ? operand.list[0] : operand;
  const int64_t offset = static_cast<int64_t>(bracketed ? operand.integer : 0);
  switch (base.kind) {
    case Kind::kRegister: {
      int bits = 0;
      const Slot slot = source_any(base, Type::kB64, &bits);
      if (bits != 32 && bits != 64)
        fail_syntax(fmt::format("an address of {} bits; accepted: 32, 64", bits));
      return {slot, bits == 64, offset};
    }
    case Kind::kInteger:
      return {builder_.constant(0, 64), true, offset + static_cast<int64_t>(base.integer)};
    case Kind::kVariable:
    case Kind::kParameter:
    case Kind::kResult: {
      const auto symbol = builder_.address_of(base);
      const int64_t whole = offset + static_cast<int64_t>(base.integer);
      return {builder_.constant(symbol.value, 64, symbol.base), true, whole};
    }
    default: fail_syntax("an operand that is no address; accepted: [address]");
  }
}

int64_t Decoder::constant(const Operand& operand) {
  if (!is_constant(operand)) fail_syntax("an operand that is no constant; accepted: an integer");
  return static_cast<int64_t>(operand.integer);
}

std::vector<const Operand*> Decoder::elements(const Operand& operand) const {
  std::vector<const Operand*> result;
  if (operand.kind != Operand::Kind::kVector) {
    result.push_back(&operand);
    return result;
  }
  for (const Operand& element : operand.list) result.push_back(&element);
  return result;
}

uint32_t Decoder::target(const Operand& operand) const {
  if (operand.kind != Operand::Kind::kLabel)
    fail_syntax("an operand that is no label; accepted: a label");
  return builder_.pc_of(operand.index);
}

std::string statement_error(std::string_view why, std::string_view statement) {
  return fmt::format("{}, in `{}`", why, parse::excerpt(statement));
}

// --- What the instruction keeps ---------------------------------------------------------------

#ifdef PTXEMU_CHECK_SLOTS
void DecodedForm::require_type(const char* type) const {
  if (type != type_) throw std::logic_error("a handler asks for another form than was decoded");
}
#endif

void Decoder::keep_alive(std::shared_ptr<void> owned) { builder_.keep_alive(std::move(owned)); }

std::span<const Slot> Decoder::keep(std::vector<Slot> slots) {
  return keep(KeptSlots{std::move(slots)})->slots;
}

void Decoder::set_list(Insn& insn, std::vector<Slot> slots) {
  const auto kept = keep(std::move(slots));
  insn.list = kept.data();
  insn.list_size = static_cast<uint16_t>(kept.size());
}

}  // namespace ptxemu
