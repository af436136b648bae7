#include "mutations.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string_view>

namespace ptxemu::fuzz {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '%';
}

struct Span {
  size_t begin, end;
};

std::vector<Span> lines_of(const std::string& text) {
  std::vector<Span> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back({begin, end});
    begin = end;
  }
  return lines;
}

// Runs of characters that `belongs` takes.
template <class F>
std::vector<Span> runs_of(const std::string& text, F belongs) {
  std::vector<Span> runs;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!belongs(text[i])) continue;
    const size_t begin = i;
    while (i < text.size() && belongs(text[i])) ++i;
    runs.push_back({begin, i});
  }
  return runs;
}

constexpr std::string_view kNumbers[] = {"0",
                                         "1",
                                         "2",
                                         "3",
                                         "7",
                                         "8",
                                         "15",
                                         "16",
                                         "31",
                                         "32",
                                         "63",
                                         "64",
                                         "127",
                                         "128",
                                         "255",
                                         "256",
                                         "511",
                                         "512",
                                         "1023",
                                         "1024",
                                         "4095",
                                         "4096",
                                         "32767",
                                         "65535",
                                         "65536",
                                         "232448",
                                         "16777215",
                                         "16777216",
                                         "2147483647",
                                         "2147483648",
                                         "-1",
                                         "4294967280",
                                         "4294967295",
                                         "4294967296",
                                         "-2147483648",
                                         "1099511627776",
                                         "9223372036854775807",
                                         "18446744073709551615",
                                         "0x1000000000",
                                         "0x100000000000"};

}  // namespace

Mutations::Mutations(const std::vector<std::string>& corpus, std::mt19937_64& random)
    : random_(random) {
  std::set<std::string> known;
  for (const std::string& text : corpus) {
    for (const Span& word : runs_of(text, is_word)) {
      constexpr size_t kLongest = 40;
      if (word.end - word.begin < kLongest) {
        known.insert(text.substr(word.begin, word.end - word.begin));
      }
    }
  }
  words_.assign(known.begin(), known.end());
}

void Mutations::mutate(std::string* input, const std::string& other) {
  const size_t changes = size_t{1} << below(3);
  for (size_t i = 0; i < changes; ++i) mutate_once(input, other);
}

void Mutations::mutate_once(std::string* input, const std::string& other) {
  if (input->empty()) *input = other;
  if (input->empty()) return;
  switch (below(16)) {
    case 0: return change_byte(input);
    case 1: (*input)[0] = static_cast<char>(random_()); return;
    case 2:
    case 3:
    case 4:
    case 5: return change_line(input, other);
    case 6:
    case 7:
    case 8:
    case 9: return change_number(input);
    default: return change_word(input);
  }
}

void Mutations::change_byte(std::string* input) {
  const size_t at = below(input->size());
  switch (below(3)) {
    case 0: (*input)[at] = static_cast<char>(random_()); break;
    case 1: input->erase(at, 1 + below(8)); break;
    default: input->insert(at, 1, static_cast<char>(' ' + below(95))); break;
  }
}

void Mutations::change_line(std::string* input, const std::string& other) {
  const auto lines = lines_of(*input);
  const Span line = lines[below(lines.size())];
  const size_t length = line.end - line.begin;
  switch (below(4)) {
    case 0: input->erase(line.begin, length); return;
    case 1: input->insert(line.begin, input->substr(line.begin, length)); return;
    case 2: {
      const Span from = lines[below(lines.size())];
      const std::string moved = input->substr(from.begin, from.end - from.begin);
      input->insert(line.begin, moved);
      return;
    }
    default: {
      const auto others = lines_of(other);
      if (others.empty()) return;
      const Span from = others[below(others.size())];
      input->insert(line.begin, other, from.begin, from.end - from.begin);
      return;
    }
  }
}

void Mutations::change_word(std::string* input) {
  const auto found = runs_of(*input, is_word);
  if (found.empty() || words_.empty()) return;
  const Span word = found[below(found.size())];
  // Half of the time by one of the input itself: its registers and labels.
  const Span own = found[below(found.size())];
  const std::string by =
      below(2) == 0 ? words_[below(words_.size())] : input->substr(own.begin, own.end - own.begin);
  input->replace(word.begin, word.end - word.begin, by);
}

void Mutations::change_number(std::string* input) {
  const auto found =
      runs_of(*input, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  if (found.empty()) return;
  const Span number = found[below(found.size())];
  const std::string_view by = kNumbers[below(std::size(kNumbers))];
  input->replace(number.begin, number.end - number.begin, by);
}

}  // namespace ptxemu::fuzz
