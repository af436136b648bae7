#include "emulator/parse/constant.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

namespace ptxemu::parse {
namespace {

constexpr int kMaxDepth = 100;

Constant make_integer(uint64_t value, bool is_unsigned) {
  Constant c;
  c.integer = value;
  c.is_unsigned = is_unsigned;
  return c;
}

Constant make_float(double value) {
  Constant c;
  c.is_float = true;
  c.real = value;
  c.integer = std::bit_cast<uint64_t>(value);
  return c;
}

// Widening in the processor would quiet a signalling NaN.
double widened(uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  if (!std::isnan(value)) return value;
  const uint64_t sign = uint64_t{bits >> 31} << 63;
  return std::bit_cast<double>(sign | 0x7FF0000000000000u | uint64_t{bits & 0x7FFFFFu} << 29);
}

bool parse_digits(std::string_view digits, int base, uint64_t* value) {
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, *value, base);
  return !digits.empty() && error == std::errc() && stop == end;
}

// 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX.
Constant parse_coded_float(const Lexer& lexer, const Token& token, bool is_single) {
  const size_t digits = is_single ? 8 : 16;
  uint64_t bits = 0;
  if (token.text.size() != digits + 2 || !parse_digits(token.text.substr(2), 16, &bits)) {
    lexer.fail(token, fmt::format("`{}` is no float; accepted: {} and {} hexadecimal digits",
                                  token.text, token.text.substr(0, 2), digits));
  }
  Constant c =
      make_float(is_single ? widened(static_cast<uint32_t>(bits)) : std::bit_cast<double>(bits));
  c.is_single = is_single;
  c.integer = bits;
  return c;
}

Constant parse_decimal_float(const Lexer& lexer, const Token& token) {
  double value = 0;
  const std::string_view text = token.text;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_range = error == std::errc::result_out_of_range;
  if (stop != text.data() + text.size() || (error != std::errc() && !is_range)) {
    lexer.fail(token, fmt::format("`{}` is no number; accepted: one such as 1.5e-3", text));
  }
  if (is_range)
    lexer.fail(token, fmt::format("`{}` does not fit a double; accepted: at most 1.8e308", text));
  return make_float(value);
}

// One operator of a binary expression and how strongly it binds; text is empty for none.
struct Operator {
  std::string_view text;
  int binding = 0;
};

constexpr Operator kOperators[] = {
    {"||", 1}, {"&&", 2}, {"|", 3}, {"^", 4}, {"&", 5}, {"==", 6}, {"!=", 6}, {"<=", 7}, {">=", 7},
    {"<<", 8}, {">>", 8}, {"<", 7}, {">", 7}, {"+", 9}, {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10},
};
constexpr int kLoosest = 1, kSum = 9, kTerm = 10;

class ExpressionParser {
 public:
  explicit ExpressionParser(Lexer& lexer) : lexer_(lexer) {}

  Constant conditional() {
    const Token first = lexer_.peek();
    const Constant condition = binary(kLoosest);
    if (!lexer_.peek().is('?')) return condition;
    deeper();
    if (condition.is_float) lexer_.fail(first, "a float before ?; accepted: an integer");
    lexer_.take();
    const Constant yes = conditional();
    lexer_.expect(':', "the second part of ?:");
    const Constant no = conditional();
    --depth_;
    if (yes.is_float != no.is_float) {
      lexer_.fail(first, "an integer and a float beside :; accepted: two of a kind");
    }
    Constant chosen = condition.integer != 0 ? yes : no;
    chosen.is_unsigned = yes.is_unsigned || no.is_unsigned;
    return chosen;
  }

  Constant binary(int weakest) {
    Constant left = unary();
    for (;;) {
      const Operator op = next_operator();
      if (op.text.empty() || op.binding < weakest) return left;
      const Token token = take(op);
      const Constant right = binary(op.binding + 1);
      left = left.is_float || right.is_float ? apply_floats(op, token, left, right)
                                             : apply_integers(op, token, left, right);
    }
  }

 private:
  void deeper() {
    if (++depth_ > kMaxDepth) {
      lexer_.fail_next(
          fmt::format("an expression nested deeper than {0}; accepted: {0} levels", kMaxDepth));
    }
  }

  Operator next_operator() const {
    const Token& token = lexer_.peek();
    if (token.is_name() && token.text[0] == '%') return {"%", 10};
    if (token.kind != TokenKind::kPunct) return {};
    const char second = lexer_.char_after(token);
    for (const Operator& op : kOperators) {
      if (op.text[0] == token.punct && (op.text.size() == 1 || op.text[1] == second)) return op;
    }
    return {};
  }

  Token take(const Operator& op) {
    if (lexer_.peek().is_name()) lexer_.read_operator_from(lexer_.peek());
    const Token token = lexer_.take();
    if (op.text.size() == 2) lexer_.take();
    return token;
  }

  Constant unary() {
    deeper();
    const Token token = lexer_.peek();
    Constant value;
    if (token.is('+') || token.is('-')) {
      lexer_.take();
      value = unary();
      if (token.is('-')) value = negated(value);
    } else if (token.is('!') || token.is('~')) {
      lexer_.take();
      value = unary();
      if (value.is_float) lexer_.fail(token, "! or ~ of a float; accepted: of an integer");
      value = token.is('!') ? make_integer(value.integer == 0, false)
                            : make_integer(~value.integer, true);
    } else if (token.is('(')) {
      value = parenthesis();
    } else {
      value = primary();
    }
    --depth_;
    return value;
  }

  static Constant negated(const Constant& value) {
    return value.is_float ? make_float(-value.real)
                          : make_integer(-value.integer, value.is_unsigned);
  }

  // (expression), or a cast: (.s64) value, (.u64) value.
  Constant parenthesis() {
    lexer_.take();
    const Token token = lexer_.peek();
    Constant value;
    if (token.is_dot() && (token.text == "s64" || token.text == "u64")) {
      lexer_.take();
      lexer_.expect(')', "the type of a cast");
      value = unary();
      if (value.is_float) lexer_.fail(token, "a cast of a float; accepted: of an integer");
      value.is_unsigned = token.text == "u64";
    } else {
      value = conditional();
      lexer_.expect(')', "an expression in parentheses");
    }
    return value;
  }

  Constant primary() {
    Token token = lexer_.peek();
    if (token.is_dot() && !token.text.empty() && token.text[0] >= '0' && token.text[0] <= '9') {
      lexer_.read_number_from(token);
      token = lexer_.peek();
    }
    if (token.kind == TokenKind::kNumber) {
      lexer_.take();
      return parse_number(lexer_, token);
    }
    if (token.is_name() && token.text == "WARP_SZ") {
      lexer_.take();
      return make_integer(32, false);
    }
    lexer_.fail(token, fmt::format("expected a constant, not {}; accepted: a number, WARP_SZ, "
                                   "an expression of them",
                                   shown(token)));
  }

  Constant apply_floats(const Operator& op, const Token& token, const Constant& a,
                        const Constant& b) const {
    if (a.is_float != b.is_float) {
      lexer_.fail(token,
                  fmt::format("{} of an integer and a float; accepted: two of a kind", op.text));
    }
    const double x = a.real, y = b.real;
    if (op.text == "+") return make_float(x + y);
    if (op.text == "-") return make_float(x - y);
    if (op.text == "*") return make_float(x * y);
    if (op.text == "/") return make_float(x / y);
    if (op.text == "<") return make_integer(x < y, false);
    if (op.text == ">") return make_integer(x > y, false);
    if (op.text == "<=") return make_integer(x <= y, false);
    if (op.text == ">=") return make_integer(x >= y, false);
    if (op.text == "==") return make_integer(x == y, false);
    if (op.text == "!=") return make_integer(x != y, false);
    lexer_.fail(token, fmt::format("{} of floats; accepted: of integers", op.text));
  }

  Constant apply_integers(const Operator& op, const Token& token, const Constant& a,
                          const Constant& b) const {
    const uint64_t x = a.integer, y = b.integer;
    const bool is_unsigned = a.is_unsigned || b.is_unsigned;
    if (op.text == "+") return make_integer(x + y, is_unsigned);
    if (op.text == "-") return make_integer(x - y, is_unsigned);
    if (op.text == "*") return make_integer(x * y, is_unsigned);
    if (op.text == "/" || op.text == "%") return divided(op, token, a, b);
    if (op.text == "<<") return make_integer(y > 63 ? 0 : x << y, a.is_unsigned);
    if (op.text == ">>") return shifted_right(a, y);
    if (op.text == "&") return make_integer(x & y, true);
    if (op.text == "|") return make_integer(x | y, true);
    if (op.text == "^") return make_integer(x ^ y, true);
    if (op.text == "&&") return make_integer(x != 0 && y != 0, false);
    if (op.text == "||") return make_integer(x != 0 || y != 0, false);
    if (op.text == "==") return make_integer(x == y, false);
    if (op.text == "!=") return make_integer(x != y, false);
    const bool less = is_unsigned ? x < y : static_cast<int64_t>(x) < static_cast<int64_t>(y);
    if (op.text == "<") return make_integer(less, false);
    if (op.text == ">=") return make_integer(!less, false);
    return make_integer((op.text == ">") == (!less && x != y), false);
  }

  static Constant shifted_right(const Constant& a, uint64_t count) {
    if (a.is_unsigned) return make_integer(count > 63 ? 0 : a.integer >> count, true);
    const int64_t value = static_cast<int64_t>(a.integer);
    return make_integer(static_cast<uint64_t>(value >> (count > 63 ? 63 : count)), false);
  }

  Constant divided(const Operator& op, const Token& token, const Constant& a,
                   const Constant& b) const {
    if (b.integer == 0)
      lexer_.fail(token, "a constant expression divides by zero; accepted: any other divisor");
    if (op.text == "%") return make_integer(a.integer % b.integer, false);
    if (a.is_unsigned || b.is_unsigned) return make_integer(a.integer / b.integer, true);
    if (b.integer == ~uint64_t{0}) return make_integer(-a.integer, false);  // INT64_MIN / -1
    return make_integer(
        static_cast<uint64_t>(static_cast<int64_t>(a.integer) / static_cast<int64_t>(b.integer)),
        false);
  }

  Lexer& lexer_;
  int depth_ = 0;
};

std::string text_of(const Constant& value) {
  if (value.is_float) return fmt::format("{}", value.real);
  if (value.is_unsigned) return fmt::format("{}", value.integer);
  return fmt::format("{}", static_cast<int64_t>(value.integer));
}

uint64_t checked_count(const Lexer& lexer, const Token& at, const Constant& value,
                       std::string_view what, uint64_t least, uint64_t limit) {
  const bool is_negative = !value.is_unsigned && value.integer >> 63 != 0;
  if (value.is_float || is_negative || value.integer < least || value.integer > limit) {
    lexer.fail(at, fmt::format("{} of {}; accepted: an integer from {} to {}", what, text_of(value),
                               least, limit));
  }
  return value.integer;
}

}  // namespace

Constant parse_number(const Lexer& lexer, const Token& token) {
  std::string_view text = token.text;
  const char kind = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (kind == 'f' || kind == 'd') return parse_coded_float(lexer, token, kind == 'f');
  const bool is_hex = kind == 'x';
  if (!is_hex && text.find_first_of(".eE") != std::string_view::npos) {
    return parse_decimal_float(lexer, token);
  }
  const bool has_suffix = text.size() > 1 && text.back() == 'U';
  if (has_suffix) text.remove_suffix(1);
  int base = 10;
  if (is_hex || kind == 'b') {
    base = is_hex ? 16 : 2;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  uint64_t value = 0;
  if (!parse_digits(text, base, &value)) {
    lexer.fail(token,
               fmt::format("`{}` is no integer of 64 bits; accepted: digits of base {} below 2^64",
                           token.text, base));
  }
  return make_integer(value, has_suffix || value >> 63 != 0);
}

bool at_constant(const Lexer& lexer) {
  const Token& token = lexer.peek();
  if (token.kind == TokenKind::kNumber) return true;
  if (token.is_name()) return token.text == "WARP_SZ";
  if (token.is_dot()) return !token.text.empty() && token.text[0] >= '0' && token.text[0] <= '9';
  return token.is('-') || token.is('+') || token.is('~') || token.is('(') || token.is('!');
}

Constant parse_constant(Lexer& lexer) { return ExpressionParser(lexer).conditional(); }

Constant parse_term(Lexer& lexer) { return ExpressionParser(lexer).binary(kTerm); }

uint64_t parse_count(Lexer& lexer, std::string_view what, uint64_t limit, uint64_t least) {
  const Token first = lexer.peek();
  return checked_count(lexer, first, parse_constant(lexer), what, least, limit);
}

uint64_t parse_range_count(Lexer& lexer, std::string_view what, uint64_t limit) {
  const Token first = lexer.peek();
  const Constant value = ExpressionParser(lexer).binary(kSum);
  lexer.expect('>', what);
  return checked_count(lexer, first, value, what, 0, limit);
}

}  // namespace ptxemu::parse
