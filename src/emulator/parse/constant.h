// Constants and constant expressions ("Constants"; PTX ISA 4.5).
#pragma once

#include <cstdint>

#include "emulator/parse/lexer.h"

namespace ptxemu::parse {

struct Constant {
  bool is_float = false;
  bool is_single = false;    // a float written 0fXXXXXXXX: `integer` has its 32 bits
  bool is_unsigned = false;  // .u64, else .s64
  uint64_t integer = 0;      // of a float: its bits
  double real = 0;
};

// A literal: decimal, 0x, 0b, octal, U, 1.5e-3, 0f, 0d.
Constant parse_number(const Lexer& lexer, const Token& token);

// Whether an expression, and no name or list, is next.
bool at_constant(const Lexer& lexer);

// A whole expression, conditional included.
Constant parse_constant(Lexer& lexer);
// What + or - of an address offset adds or subtracts: stops before the next + or -.
Constant parse_term(Lexer& lexer);

// A whole integer expression within [least, limit]; `what` it is, for the message.
uint64_t parse_count(Lexer& lexer, std::string_view what, uint64_t limit, uint64_t least = 0);
// <COUNT> after a name, of which the < is taken: `>` ends it and compares nothing.
uint64_t parse_range_count(Lexer& lexer, std::string_view what, uint64_t limit);

}  // namespace ptxemu::parse
