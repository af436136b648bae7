#include "emulator/parse/scopes.h"

#include <algorithm>

namespace ptxemu::parse {

template <class T>
bool Scopes::Names<T>::declare(std::string_view name, const T& value, uint32_t depth) {
  const auto [place, is_new] = map.try_emplace(name, Entry<T>{value, depth});
  if (!is_new && place->second.depth == depth) return false;
  hidden.push_back({name, is_new ? Entry<T>{} : place->second});
  place->second = {value, depth};
  return true;
}

template <class T>
void Scopes::Names<T>::close(size_t mark) {
  while (hidden.size() > mark) {
    const Hidden& last = hidden.back();
    if (last.entry.depth == 0) {
      map.erase(last.name);
    } else {
      map[last.name] = last.entry;
    }
    hidden.pop_back();
  }
}

void Scopes::open() {
  marks_.push_back(
      {symbols_.hidden.size(), range_names_.hidden.size(), labels_.hidden.size(), uses_.size()});
  ++depth_;
}

void Scopes::forget(const Mark& mark) {
  symbols_.close(mark.symbols);
  range_names_.close(mark.ranges);
  labels_.close(mark.labels);
  marks_.pop_back();
  --depth_;
}

bool Scopes::declare(std::string_view name, const Symbol& symbol) {
  return symbols_.declare(name, symbol, depth_);
}

uint32_t Scopes::make_register(std::string_view name, Type type, uint32_t width) {
  const uint32_t first = static_cast<uint32_t>(function_.registers.size());
  for (uint32_t i = 0; i < width; ++i) function_.registers.push_back({name, type});
  return first;
}

bool Scopes::declare_register(std::string_view name, Type type, uint32_t width) {
  const uint32_t index = static_cast<uint32_t>(function_.registers.size());
  if (!declare(name, {Symbol::Kind::kRegister, index, width})) return false;
  make_register(name, type, width);
  return true;
}

bool Scopes::declare_registers(std::string_view prefix, uint32_t count, Type type, uint32_t width) {
  const uint32_t index = static_cast<uint32_t>(ranges_.size());
  if (!range_names_.declare(prefix, index, depth_)) return false;
  ranges_.push_back({type, count, width, {}});
  has_prefix_with_digit_ |= prefix.back() >= '0' && prefix.back() <= '9';
  return true;
}

bool Scopes::declare_label(std::string_view name, const Label& label) {
  return labels_.declare(name, label, depth_);
}

// The range of which the name's last `digits` characters are the number.
bool Scopes::find_in_range(std::string_view name, size_t digits, Entry<uint32_t>* range,
                           uint32_t* number) const {
  const std::string_view suffix = name.substr(name.size() - digits);
  if (digits > 9 || (digits > 1 && suffix[0] == '0')) return false;
  const auto found = range_names_.map.find(name.substr(0, name.size() - digits));
  if (found == range_names_.map.end()) return false;
  uint32_t value = 0;
  for (const char c : suffix) value = value * 10 + static_cast<uint32_t>(c - '0');
  if (value >= ranges_[found->second.value].count) return false;
  *range = found->second;
  *number = value;
  return true;
}

uint32_t& Scopes::made_register(uint32_t range, uint32_t number) {
  std::vector<uint32_t>& table = ranges_[range].made;
  if (number >= table.size()) {
    const size_t growth = number + 1 - table.size();
    // The budget only shrinks: a number that went to sparse_ once always goes there.
    if (growth > table_budget_) return sparse_[uint64_t{range} << 32 | number];
    table_budget_ -= growth;
    table.resize(number + 1);
  }
  return table[number];
}

bool Scopes::find(std::string_view name, Symbol* symbol) {
  const auto exact = symbols_.map.find(name);
  const uint32_t exact_depth = exact == symbols_.map.end() ? 0 : exact->second.depth;
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9') {
    ++digits;
  }
  Entry<uint32_t> range;
  uint32_t number = 0;
  for (size_t n = std::min<size_t>(digits, 10); n > 0; --n) {
    Entry<uint32_t> candidate;
    uint32_t value = 0;
    if (find_in_range(name, n, &candidate, &value) && candidate.depth > range.depth) {
      range = candidate;
      number = value;
    }
    if (n == digits && !has_prefix_with_digit_) break;
  }
  if (range.depth > exact_depth) {
    const Range& of = ranges_[range.value];
    uint32_t& made = made_register(range.value, number);
    if (made == 0) made = make_register(name, of.type, of.width) + 1;
    *symbol = {Symbol::Kind::kRegister, made - 1, of.width};
    return true;
  }
  if (exact_depth == 0) return false;
  *symbol = exact->second.value;
  return true;
}

}  // namespace ptxemu::parse
