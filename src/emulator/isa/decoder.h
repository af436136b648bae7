// What a family's decode function sees of one statement: its qualifiers, which it takes one by one
// in whatever order they were written, and its operands as slots. Whatever it does not take is an
// error that names the word; so nothing is ever ignored.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/isa/insn.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

class FunctionBuilder;  // isa/builder.h: slots, constants and owned data of the function

// [base + offset]; base holds 32- or 64-bit addresses.
struct Address {
  Slot base = kNoSlot;
  bool wide = true;  // 64-bit values in base
  int64_t offset = 0;
};

class Decoder {
 public:
  Decoder(FunctionBuilder& builder, const Statement& statement, const InstructionRow& row,
          size_t covered_words);

  // --- Qualifiers ---------------------------------------------------------------------------
  // Removes the first untaken qualifier that equals `word`; false when there is none.
  bool take(std::string_view word);
  // Whether it is there, untaken: for what is refused, which finish() must not call accepted.
  bool has(std::string_view word) const;
  // Removes the first untaken qualifier that is a type, in the order written; kNone when none.
  Type take_type();
  // As take_type, but the qualifier must be there.
  Type need_type();
  // The value of the one qualifier among `choices` that is present, else `otherwise`; two: an
  // error.
  template <class T>
  T take_one(std::initializer_list<std::pair<std::string_view, T>> choices, T otherwise) {
    T value = otherwise;
    bool found = false;
    const size_t others = asked_.size();
    for (const auto& [word, choice] : choices) {
      if (!take(word)) continue;
      if (found) fail_second(word);
      found = true;
      value = choice;
    }
    if (found) asked_.resize(others);
    return value;
  }
  // .global, .shared, .shared::cta, .shared::cluster, .local, .param, .const; kGeneric when none.
  // (.param::entry and .param::func count as .param.)
  Space take_space();
  // Cache and eviction hints, scopes and orderings that change no value and are legal anywhere on
  // loads and stores; returns what was there (see the .cc). Family code takes the ones it models.
  std::vector<std::string_view> untaken() const;
  // Throws Error{kUnknownForm} when a qualifier is left over; the message names those that were
  // asked for.
  void finish() const;

  // --- Operands -----------------------------------------------------------------------------
  size_t operand_count() const { return statement_.operands.size(); }
  const Operand& operand(size_t i) const;  // throws when there is none
  // Throws unless the count lies in [least, most].
  void need_operands(size_t least, size_t most) const;

  // A register of the width of `type`, or an immediate, variable address, special register or
  // constant as a slot that holds it in every lane. Predicates: an immediate 0 / 1 / -1 works too.
  Slot source(size_t i, Type type) { return source(operand(i), type); }
  Slot source(const Operand& operand, Type type);
  // A source of any width: the slot and, in *bits, the register's own width (8 and 16 both lie in
  // 16-bit slots). For ld, st and cvt, whose registers may be wider than the type.
  Slot source_any(const Operand& operand, Type type, int* bits);
  // A register that is written. A sink (_) is a slot of the same width that nobody reads, so that a
  // handler writes its result wherever it is told to.
  Slot dest(size_t i, Type type) { return dest(operand(i), type); }
  Slot dest(const Operand& operand, Type type);
  // The same, but kNoSlot for a sink: for handlers that do something else where no result is
  // wanted.
  Slot dest_or_none(size_t i, Type type) { return dest_or_none(operand(i), type); }
  Slot dest_or_none(const Operand& operand, Type type);
  // A destination of any width, in *bits; that of `type` for a sink.
  Slot dest_any(const Operand& operand, Type type, int* bits);
  // A predicate operand with an optional !; *negated says so.
  Slot predicate(const Operand& operand, bool* negated);
  Address address(size_t i) { return address(operand(i)); }
  Address address(const Operand& operand);
  // An integer known while decoding; throws otherwise.
  int64_t constant(size_t i) { return constant(operand(i)); }
  int64_t constant(const Operand& operand);
  bool is_constant(const Operand& operand) const { return operand.kind == Operand::Kind::kInteger; }
  // A vector operand's elements, or the operand alone.
  std::vector<const Operand*> elements(const Operand& operand) const;
  // Where the code of a label is (Operand::kLabel).
  uint32_t target(const Operand& operand) const;
  // Slots of nobody, of the width of `type`: for results that are not wanted.
  Slot scratch(Type type);
  // A slot that holds `bits` of this value in every lane.
  Slot constant_slot(uint64_t value, int bits);

  // --- What the instruction keeps -------------------------------------------------------------
  std::span<const Slot> keep(std::vector<Slot> slots);  // owned by the function
  template <class T>
  const T* keep(T value) {
    auto owned = std::make_shared<T>(std::move(value));
    const T* pointer = owned.get();
    keep_alive(std::move(owned));
    return pointer;
  }
  // What the instruction's handlers get by insn.form<T>().
  template <class T>
  void set_form(Insn& insn, T form) {
    if constexpr (DecodedForm::kInside<T>) {
      insn.decoded.set(form);
    } else {
      insn.decoded.refer(keep(std::move(form)));
    }
  }
  void set_list(Insn& insn, std::vector<Slot> slots);  // insn.list, insn.list_size
  void keep_alive(std::shared_ptr<void> owned);

  FunctionBuilder& builder() { return builder_; }
  const Statement& statement() const { return statement_; }
  // The statement's words after the row's own, taken or not.
  std::span<const std::string_view> qualifiers() const;

  // `why` ends with what is accepted: "shf without a direction; accepted: .l, .r".
  [[noreturn]] void fail(const std::string& why) const;         // kUnknownForm, with the line
  [[noreturn]] void fail_syntax(const std::string& why) const;  // kSyntax: wrong operands
  // kUnknownForm: not of this type, but of these.
  [[noreturn]] void fail_type(Type type, std::string_view accepted) const;

 private:
  [[noreturn]] void fail_second(std::string_view word) const;  // of those that exclude each other
  void check_width(int bits, Type type) const;
  Slot used_register(const Operand& operand, Type type, bool written, int* bits);

  FunctionBuilder& builder_;
  const Statement& statement_;
  const InstructionRow& row_;
  size_t covered_;
  std::vector<bool> taken_;
  std::vector<std::string_view> asked_;  // qualifiers that the family knows and that are not there
};

// The message of an error in a statement: why, and the statement, cut when long.
std::string statement_error(std::string_view why, std::string_view statement);

}  // namespace ptxemu
