#include "emulator/parse/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace ptxemu::parse {
namespace {

enum : uint8_t { kBlank = 1, kNameStart = 2, kNamePart = 4, kDigit = 8, kHexDigit = 16 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (const char c : {' ', '\t', '\r', '\n', '\f', '\v'})
    classes[static_cast<uint8_t>(c)] = kBlank;
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 32] = kNameStart | kNamePart;
  for (int c = 'a'; c <= 'f'; ++c)
    classes[c] = classes[c - 32] = kNameStart | kNamePart | kHexDigit;
  for (int c = '0'; c <= '9'; ++c) classes[c] = kNamePart | kDigit | kHexDigit;
  classes['_'] = classes['$'] = kNameStart | kNamePart;
  classes['%'] = kNameStart;
  return classes;
}
constexpr std::array<uint8_t, 256> kClasses = make_classes();

bool has(char c, uint8_t what) { return kClasses[static_cast<uint8_t>(c)] & what; }

constexpr size_t kShownLength = 100;

// The text of the line that holds the offset.
std::string line_around(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  size_t begin = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;  // npos + 1 is 0
  while (begin < offset && has(text[begin], kBlank)) ++begin;
  if (offset - begin > kShownLength / 2) begin = offset - kShownLength / 2;
  const std::string_view line = text.substr(begin, kShownLength);
  return excerpt(line.substr(0, line.find_first_of("\r\n")));
}

}  // namespace

std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, kShownLength));
  for (char& c : shown) {
    if (has(c, kBlank)) c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kShownLength ? shown + "..." : shown;
}

std::string shown(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "the end of the text";
  return fmt::format("`{}{}`", token.is_dot() ? "." : "", excerpt(token.text));
}

Lexer::Lexer(std::string_view text) : text_(text) { read(); }

Token Lexer::take() {
  const Token taken = next_;
  last_end_ = taken.end;
  read();
  return taken;
}

bool Lexer::accept(char c) {
  if (!next_.is(c)) return false;
  take();
  return true;
}

Token Lexer::expect(char c, std::string_view after) {
  if (!next_.is(c)) fail_next(fmt::format("{} after {}; accepted: '{}'", shown(next_), after, c));
  return take();
}

Token Lexer::expect_name(std::string_view what) {
  if (!next_.is_name())
    fail_next(fmt::format("{} is out of place; accepted: {}", shown(next_), what));
  return take();
}

Token Lexer::expect_string(std::string_view what) {
  if (next_.kind != TokenKind::kString)
    fail_next(fmt::format("{} is out of place; accepted: {}", shown(next_), what));
  return take();
}

std::string_view Lexer::text_from(const Token& first) const {
  return text_.substr(first.begin, std::max(last_end_, first.begin) - first.begin);
}

Token Lexer::token_of(std::string_view part, uint32_t line) const {
  Token token;
  token.kind = TokenKind::kName;
  token.line = line;
  token.text = part;
  // A made name lies elsewhere: its line is all there is to say.
  const bool is_inside = part.data() >= text_.data() && part.data() < text_.data() + text_.size();
  token.begin = is_inside ? static_cast<uint32_t>(part.data() - text_.data()) : 0;
  return token;
}

void Lexer::fail(const Token& token, std::string_view message, ErrorCode code) const {
  const std::string line = line_around(text_, token.begin);
  const std::string place = token.kind == TokenKind::kEnd && line.empty()
                                ? "at the end of the text"
                                : fmt::format("in `{}`", line);
  throw Error(code, token.line, fmt::format("{}, {}", message, place));
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (has(c, kBlank)) {
      ++position_;
    } else if (c == '/' && at(position_ + 1) == '/') {
      position_ = std::min(text_.size(), text_.find('\n', position_));
    } else if (c == '/' && at(position_ + 1) == '*') {
      skip_block_comment();
    } else {
      return;
    }
  }
}

void Lexer::skip_block_comment() {
  const size_t end = text_.find("*/", position_ + 2);
  if (end == std::string_view::npos) {
    finish(TokenKind::kPunct, position_, position_, position_ + 2);
    fail_next("a comment /* has no end; accepted: */ after it");
  }
  line_ += static_cast<uint32_t>(std::count(text_.begin() + position_, text_.begin() + end, '\n'));
  position_ = end + 2;
}

void Lexer::finish(TokenKind kind, size_t begin, size_t text_begin, size_t text_end) {
  next_.kind = kind;
  next_.line = line_;
  next_.begin = static_cast<uint32_t>(begin);
  next_.end = static_cast<uint32_t>(position_);
  next_.text = text_.substr(text_begin, text_end - text_begin);
}

void Lexer::read() {
  skip_blanks();
  const size_t begin = position_;
  if (begin >= text_.size()) return finish(TokenKind::kEnd, begin, begin, begin);
  const char c = text_[begin];
  if (has(c, kNameStart) && (c != '%' || has(at(begin + 1), kNamePart))) {
    ++position_;
    while (has(at(position_), kNamePart)) ++position_;
    return finish(TokenKind::kName, begin, begin, position_);
  }
  if (c == '.') {
    for (++position_;; position_ += 2) {
      while (has(at(position_), kNamePart)) ++position_;
      if (at(position_) != ':' || at(position_ + 1) != ':') break;
    }
    return finish(TokenKind::kDot, begin, begin + 1, position_);
  }
  if (has(c, kDigit)) {
    position_ = end_of_number(begin);
    return finish(TokenKind::kNumber, begin, begin, position_);
  }
  if (c == '"') return read_string();
  ++position_;
  next_.punct = c;
  finish(TokenKind::kPunct, begin, begin, position_);
  if (c <= ' ' || c > '~') {
    fail_next(fmt::format("a byte 0x{:02x}; accepted: printable ASCII", static_cast<uint8_t>(c)));
  }
}

// 0x1F, 0b1, 0f3F800000 are one run of letters and digits; 1.5e-3 has a point and a sign.
size_t Lexer::end_of_number(size_t position) const {
  const bool is_coded = text_[position] == '0' && has(at(position + 1), kNameStart);
  if (!is_coded) {
    while (has(at(position), kDigit)) ++position;
    if (at(position) == '.') {
      ++position;
      while (has(at(position), kDigit)) ++position;
    }
    if (at(position) == 'e' || at(position) == 'E') {
      const size_t digits = position + (at(position + 1) == '+' || at(position + 1) == '-' ? 2 : 1);
      if (has(at(digits), kDigit)) position = digits;
    }
  }
  while (has(at(position), kNamePart)) ++position;
  return position;
}

void Lexer::read_string() {
  const size_t begin = position_++;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    position_ +=
        text_[position_] == '\\' && position_ + 1 < text_.size() && text_[position_ + 1] != '\n'
            ? 2
            : 1;
  }
  const bool is_closed = at(position_) == '"';
  if (is_closed) ++position_;
  finish(TokenKind::kString, begin, begin + 1, position_ - (is_closed ? 1 : 0));
  if (!is_closed) fail_next("a string has no closing quote; accepted: one in its line");
}

void Lexer::read_number_from(const Token& token) {
  position_ = token.begin + 1;
  line_ = token.line;
  while (has(at(position_), kDigit)) ++position_;
  const char e = at(position_);
  if (e == 'e' || e == 'E') {
    const char sign = at(position_ + 1);
    const size_t digits = position_ + (sign == '+' || sign == '-' ? 2 : 1);
    while (position_ < digits || has(at(position_), kDigit)) ++position_;
  }
  while (has(at(position_), kNamePart)) ++position_;
  position_ = std::min(position_, text_.size());
  finish(TokenKind::kNumber, token.begin, token.begin, position_);
}

void Lexer::read_operator_from(const Token& token) {
  position_ = token.begin + 1;
  line_ = token.line;
  next_.punct = text_[token.begin];
  finish(TokenKind::kPunct, token.begin, token.begin, position_);
}

void Lexer::skip_line() {
  position_ = std::min(text_.size(), text_.find('\n', next_.begin));
  line_ = next_.line;
  read();
}

}  // namespace ptxemu::parse
