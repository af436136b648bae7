// Tokens of a PTX text ("Source Format", "Comments", "Identifiers"; PTX ISA 4.1, 4.2, 4.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "emulator/error.h"

namespace ptxemu::parse {

enum class TokenKind : uint8_t {
  kEnd,
  kName,    // add, %r1, $L__BB0_2, WARP_SZ
  kDot,     // .global, .shared::cta, .32x32b: the text is without the dot, and may be empty
  kNumber,  // 12, 0x1F, 0f3F800000, 1.5e-3, 7U
  kString,  // "nounroll": the text is without the quotes
  kPunct,   // one character
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  char punct = 0;  // kPunct
  uint32_t line = 0;
  uint32_t begin = 0, end = 0;  // offsets in the text, dot and quotes included
  std::string_view text;

  bool is(char c) const { return kind == TokenKind::kPunct && punct == c; }
  bool is_name() const { return kind == TokenKind::kName; }
  bool is_dot() const { return kind == TokenKind::kDot; }
};

// Reads tokens one after the other, looking one ahead. The text must outlive it.
class Lexer {
 public:
  explicit Lexer(std::string_view text);

  const Token& peek() const { return next_; }
  Token take();
  bool accept(char c);                           // takes it if it is next
  Token expect(char c, std::string_view after);  // "expected ')' after AFTER"
  Token expect_name(std::string_view what);      // "expected WHAT"
  Token expect_string(std::string_view what);
  void read_number_from(const Token& token);             // what began as .5 is next, as a number
  void read_operator_from(const Token& token);           // what began as %3 is next, as % and 3
  void skip_line();                                      // the rest of the line of peek()
  std::string_view text_from(const Token& first) const;  // up to the last token that was taken
  Token token_of(std::string_view part, uint32_t line) const;  // a part of the text, for fail()
  bool touches(const Token& token) const { return next_.begin == token.end; }
  char char_after(const Token& token) const { return at(token.end); }

  // Throws an Error with the line, its text and the message.
  [[noreturn]] void fail(const Token& at, std::string_view message,
                         ErrorCode code = ErrorCode::kSyntax) const;
  [[noreturn]] void fail_next(std::string_view message) const { fail(next_, message); }

 private:
  char at(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  void skip_blanks();
  void skip_block_comment();
  void read();
  void finish(TokenKind kind, size_t begin, size_t text_begin, size_t text_end);
  size_t end_of_number(size_t position) const;
  void read_string();

  std::string_view text_;
  size_t position_ = 0;  // after next_
  uint32_t line_ = 1;
  uint32_t last_end_ = 0;
  Token next_;
};

// Text of a module as an error message shows it: printable, in one line, cut when long.
std::string excerpt(std::string_view text);
// The token so, in quotes: `ld`; or "the end of the text".
std::string shown(const Token& token);

}  // namespace ptxemu::parse
