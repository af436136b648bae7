#include "fixture_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "../support/split.h"

namespace ptxemu::fixtures {
namespace {

constexpr size_t kWordsShown = 48;

uint64_t splitmix(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void append(std::vector<uint8_t>* bytes, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes->push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// $name becomes the value of the longest key that fits, with a blank for each ~; a $X that the row
// does not have, nothing.
std::string substitute(std::string text, const std::map<std::string, std::string>& values) {
  for (auto it = values.rbegin(); it != values.rend(); ++it) {
    const std::string name = "$" + it->first;
    std::string value = it->second;
    std::replace(value.begin(), value.end(), '~', ' ');
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
      text.replace(at, name.size(), value);
      at += value.size();
    }
  }
  for (size_t at = text.find('$'); at != std::string::npos; at = text.find('$', at))
    text.erase(at, 2);
  return text;
}

// The text with its index for each # and a multiple of it for each #4.
std::string with_index(const std::string& text, size_t index) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '#') {
      result += text[at];
      continue;
    }
    size_t factor = 0;
    while (at + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[at + 1])) != 0) {
      factor = 10 * factor + static_cast<size_t>(text[++at] - '0');
    }
    result += std::to_string(index * (factor == 0 ? 1 : factor));
  }
  return result;
}

// <<3|%r#,>> is %r0,%r1,%r2 and <<2|[%d1+#4]>> is [%d1+0][%d1+4].
std::string repeat(std::string text) {
  for (size_t at = text.find("<<"); at != std::string::npos; at = text.find("<<", at)) {
    const size_t bar = text.find('|', at), end = text.find(">>", bar);
    const size_t count = std::stoul(text.substr(at + 2, bar - at - 2));
    const std::string part = text.substr(bar + 1, end - bar - 1);
    std::string all;
    for (size_t i = 0; i < count; ++i) all += with_index(part, i);
    if (!all.empty() && all.back() == ',') all.pop_back();
    text.replace(at, end + 2 - at, all);
  }
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path) {
    if (!file_) throw std::runtime_error("no file " + path);
  }

  std::vector<Row> read() {
    std::string line;
    for (; std::getline(file_, line); ++line_) {
      if (line.empty() || line[0] == '#') continue;
      const size_t space = std::min(line.find(' '), line.size());
      take(line.substr(0, space), line.substr(std::min(space + 1, line.size())));
    }
    for (const Row& row : rows_) {
      if (row.forms.empty() || row.want.empty())
        throw std::runtime_error(row.where + ": not whole");
    }
    return std::move(rows_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", path_, line_, why));
  }

  void take(const std::string& what, const std::string& rest) {
    if (what == "kernel") {
      kernel_ = &kernels_[rest];
    } else if (what == "head" || what == "entry" || what == "|") {
      if (kernel_ == nullptr) fail("a line of no kernel");
      std::string& part = what == "head"    ? kernel_->head
                          : what == "entry" ? kernel_->entry
                                            : kernel_->body;
      part += rest + "\n";
    } else if (what == "origin") {
      origin_ = rest;
    } else if (what == "with") {
      common_.clear();
      if (!rest.empty()) set(&common_, split(rest, ' '), 0);
    } else if (what == "row") {
      begin_row(rest);
    } else if (rows_.empty()) {
      fail("a line before the first row");
    } else if (what == "form") {
      add_forms(rest);
    } else if (what == "want") {
      rows_.back().want += (rows_.back().want.empty() ? "" : " ") + rest;
    } else {
      fail("unknown word " + what);
    }
  }

  void set(std::map<std::string, std::string>* values, const std::vector<std::string>& words,
           size_t first) const {
    for (size_t i = first; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      if (equals == std::string::npos) fail("no value of " + words[i]);
      (*values)[words[i].substr(0, equals)] = words[i].substr(equals + 1);
    }
  }

  void add_forms(const std::string& patterns) {
    for (const std::string& pattern : split(patterns, ' ')) {
      for (std::string& form : expand(pattern)) rows_.back().forms.push_back(std::move(form));
    }
  }

  // kernel and values, and in one line or in lines of their own: | forms | want
  void begin_row(const std::string& rest) {
    const size_t bar = rest.find(" | ");
    const auto words = split(rest.substr(0, bar), ' ');
    const auto kernel = kernels_.find(words[0]);
    if (kernel == kernels_.end()) fail("no kernel " + words[0]);
    Row row{fmt::format("{}:{}", path_, line_), origin_, kernel->second, common_, {}, {}};
    set(&row.values, words, 1);
    rows_.push_back(std::move(row));
    if (bar == std::string::npos) return;
    const size_t second = rest.find(" | ", bar + 3);
    if (second == std::string::npos) fail("forms without a result");
    add_forms(rest.substr(bar + 3, second - bar - 3));
    rows_.back().want = rest.substr(second + 3);
  }

  std::string path_, origin_;
  std::ifstream file_;
  size_t line_ = 1;
  std::map<std::string, Template> kernels_;
  Template* kernel_ = nullptr;
  std::map<std::string, std::string> common_;
  std::vector<Row> rows_;
};

}  // namespace

std::string Row::value(const std::string& key, const std::string& otherwise) const {
  const auto found = values.find(key);
  return found == values.end() ? otherwise : found->second;
}

uint32_t Row::number(const std::string& key, uint32_t otherwise) const {
  const auto found = values.find(key);
  return found == values.end() ? otherwise : static_cast<uint32_t>(std::stoul(found->second));
}

std::vector<std::string> expand(std::string_view pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return {std::string(pattern)};
  const size_t close = pattern.find('}', open);
  const std::string before(pattern.substr(0, open));
  std::vector<std::string> result;
  for (const std::string& choice : split(pattern.substr(open + 1, close - open - 1), ',')) {
    for (const std::string& rest : expand(pattern.substr(close + 1))) {
      result.push_back(before + choice + rest);
    }
  }
  return result;
}

std::vector<Row> read_fixtures(const std::string& path) { return Reader(path).read(); }

std::string module_text(const Row& row, const std::string& form) {
  auto values = row.values;
  values["form"] = form;
  const std::string text =
      row.kernel.head +
      ".visible .entry k(.param .u64 out, .param .u64 in, .param .align 64 .b8 map[128])\n" +
      row.kernel.entry +
      "{\n.reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .b64 %d<32>;\n"
      ".reg .f32 %f<32>; .reg .f64 %g<8>; .reg .b128 %q<4>;\n"
      ".reg .b64 %out, %in; .reg .b32 %t;\n"
      "ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n" +
      row.kernel.body + "ret; }\n";
  return fmt::format(".version 9.0\n.target {}\n.address_size 64\n", row.value("arch", "sm_90a")) +
         repeat(substitute(text, values));
}

std::vector<uint8_t> make_data(std::string_view description) {
  const auto parts = split(description, ':');
  std::vector<uint8_t> bytes;
  if (parts[0] == "words") {
    for (const std::string& word : split(parts.at(1), ',')) {
      append(&bytes, std::stoull(word, nullptr, 16), 4);
    }
    return bytes;
  }
  const size_t size = std::stoul(parts.at(1));
  uint64_t state = 1;
  if (parts[0] == "bits") {
    while (bytes.size() < size) append(&bytes, splitmix(&state), 4);
  } else if (parts[0] == "count2" || parts[0] == "count4") {
    const size_t element = parts[0] == "count2" ? 2 : 4;
    for (uint64_t i = 0; bytes.size() < size; ++i) append(&bytes, i, element);
  } else if (parts[0] == "pick") {
    const auto choices = split(parts.at(2), ',');
    while (bytes.size() < size) {
      const std::string& choice = choices[(splitmix(&state) >> 33) % choices.size()];
      for (size_t at = choice.size(); at != 0; at -= 2) {
        append(&bytes, std::stoull(choice.substr(at - 2, 2), nullptr, 16), 1);
      }
    }
  } else {
    throw std::runtime_error("no data is called " + parts[0]);
  }
  return bytes;
}

std::string describe(const std::vector<uint8_t>& bytes) {
  std::string text;
  std::string last;
  size_t repeats = 0, written = 0;
  const auto flush = [&] {
    if (repeats == 0 || written > kWordsShown) return;
    text += (text.empty() ? "" : " ") + last + (repeats > 1 ? fmt::format("*{}", repeats) : "");
    ++written;
  };
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(4, bytes.size() - i));
    std::string shown = fmt::format("{:x}", word);
    if (shown == last) {
      ++repeats;
      continue;
    }
    flush();
    last = std::move(shown);
    repeats = 1;
  }
  flush();
  if (written <= kWordsShown) return text;
  uint64_t hash = 0xCBF29CE484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3u;
  size_t end = 0;
  for (int i = 0; i < 8; ++i) end = text.find(' ', end + 1);
  return fmt::format("{} fnv={:016x}", text.substr(0, end), hash);
}

}  // namespace ptxemu::fixtures
