// The names of one function: nested scopes, registers made on first use, labels.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/parse/ast.h"

namespace ptxemu::parse {

struct Symbol {
  enum class Kind : uint8_t { kRegister, kVariable, kParameter, kResult };
  Kind kind = Kind::kRegister;
  uint32_t index = 0;  // of Function::registers, variables, params or results
  uint32_t width = 1;  // of a vector register
};

// What a label names: a statement, or a target list.
struct Label {
  uint32_t index = 0;
  bool is_targets = false;
};

// An operand or a target list's entry that names a label perhaps not yet seen.
struct LabelUse {
  std::string_view name;
  bool in_targets = false;
  uint32_t owner = 0;  // index of the statement, or of the target list
  uint32_t place = 0;  // index of its operand or entry
  uint32_t line = 0;
};

// Names declared since open() go at close(); an inner name hides an outer one until then.
class Scopes {
 public:
  explicit Scopes(Function& function) : function_(function) {}

  void open();
  // Answers the uses of labels of this scope: calls found(use, label). The others pass outwards.
  template <class Found>
  void close(Found&& found);
  uint32_t depth() const { return depth_; }

  // Each answers false where this scope has the name already.
  bool declare(std::string_view name, const Symbol& symbol);
  bool declare_register(std::string_view name, Type type, uint32_t width);
  bool declare_registers(std::string_view prefix, uint32_t count, Type type, uint32_t width);
  bool declare_label(std::string_view name, const Label& label);
  void use_label(const LabelUse& use) { uses_.push_back(use); }
  // Those that no scope answered, after the last close().
  const std::vector<LabelUse>& open_uses() const { return uses_; }

  // Whether the name is a register, variable or parameter here. Throws nothing.
  bool find(std::string_view name, Symbol* symbol);

 private:
  template <class T>
  struct Entry {
    T value{};
    uint32_t depth = 0;
  };
  template <class T>
  struct Names {
    struct Hidden {
      std::string_view name;
      Entry<T> entry;  // depth 0: there was none
    };
    std::unordered_map<std::string_view, Entry<T>> map;
    std::vector<Hidden> hidden;
    bool declare(std::string_view name, const T& value, uint32_t depth);
    void close(size_t mark);
  };
  struct Range {
    Type type = Type::kNone;
    uint32_t count = 0, width = 1;
    std::vector<uint32_t> made;  // number -> register + 1, 0: not yet
  };
  struct Mark {
    size_t symbols, ranges, labels, uses;
  };

  void forget(const Mark& mark);
  bool find_in_range(std::string_view name, size_t digits, Entry<uint32_t>* range,
                     uint32_t* number) const;
  uint32_t& made_register(uint32_t range, uint32_t number);
  uint32_t make_register(std::string_view name, Type type, uint32_t width);

  Function& function_;
  uint32_t depth_ = 0;
  Names<Symbol> symbols_;
  Names<uint32_t> range_names_;  // prefix -> index of ranges_
  Names<Label> labels_;
  std::vector<Range> ranges_;
  // Numbers whose tables would be too long, so that memory stays linear in the text.
  std::unordered_map<uint64_t, uint32_t> sparse_;
  size_t table_budget_ = size_t{1} << 22;
  std::vector<LabelUse> uses_;
  std::vector<Mark> marks_;
  bool has_prefix_with_digit_ = false;
};

template <class Found>
void Scopes::close(Found&& found) {
  const Mark mark = marks_.back();
  size_t kept = mark.uses;
  for (size_t i = mark.uses; i < uses_.size(); ++i) {
    const auto label = labels_.map.find(uses_[i].name);
    if (label != labels_.map.end() && label->second.depth == depth_) {
      found(uses_[i], label->second.value);
    } else {
      uses_[kept++] = uses_[i];
    }
  }
  uses_.resize(kept);
  forget(mark);
}

}  // namespace ptxemu::parse
