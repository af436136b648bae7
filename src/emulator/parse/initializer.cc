// Initial values of variables ("Initializers"; PTX ISA 5.4.4).
#include <fmt/format.h>

#include <bit>

#include "emulator/parse/parser.h"

namespace ptxemu::parse {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 40;

}  // namespace

// The value after =: one, or lists nested as the dimensions are. Gives name[] its size.
void Parser::parse_initializer(Variable* variable, std::vector<uint64_t> dimensions) {
  if (variable->vector > 1) dimensions.push_back(variable->vector);
  if (dimensions.empty()) return parse_initial_value(0, variable);
  const uint64_t count = parse_initial_list(0, 0, dimensions, variable);
  if (!variable->is_unsized || count == 0) return;
  variable->is_unsized = false;
  variable->count = count;
  for (size_t i = 1; i < dimensions.size(); ++i) variable->count *= dimensions[i];
  variable->bytes = variable->count * static_cast<uint64_t>(bytes_of(variable->type));
  if (variable->vector > 1) variable->count /= variable->vector;
}

// {value, value} or {{...}, {...}}: the dimension `level` of one array. Returns how many.
uint64_t Parser::parse_initial_list(size_t level, uint64_t first_element,
                                    const std::vector<uint64_t>& dimensions, Variable* variable) {
  lexer_.expect('{', "the = of an array");
  uint64_t stride = 1;
  for (size_t i = level + 1; i < dimensions.size(); ++i) stride *= dimensions[i];
  const uint64_t limit = dimensions[level] == 0 ? kMaxElements / stride : dimensions[level];
  uint64_t count = 0;
  if (lexer_.accept('}')) return 0;
  do {
    if (count == limit) {
      lexer_.fail_next(fmt::format("more than {0} values for `{1}`; accepted: at most {0}", limit,
                                   variable->name));
    }
    const uint64_t element = first_element + count * stride;
    if (level + 1 == dimensions.size()) {
      parse_initial_value(element, variable);
    } else {
      parse_initial_list(level + 1, element, dimensions, variable);
    }
    ++count;
  } while (lexer_.accept(','));
  lexer_.expect('}', "the values of an array");
  return count;
}

void Parser::parse_initial_value(uint64_t element, Variable* variable) {
  Initializer value;
  value.byte_offset = element * static_cast<uint64_t>(bytes_of(variable->type));
  const Token first = lexer_.peek();
  if (first.is_name() && first.text != "WARP_SZ") {
    parse_initial_address(&value);
  } else if (first.kind == TokenKind::kNumber && lexer_.char_after(first) == '(') {
    lexer_.take();
    parse_masked(first, &value);
  } else {
    convert_initial(first, parse_constant(lexer_), *variable, &value);
  }
  const int bits = bits_of(variable->type);
  const bool is_whole_address = value.kind == Initializer::Kind::kAddress && value.mask == 0;
  if (is_whole_address && bits != 32 && bits != 64) {
    lexer_.fail(first, fmt::format("an address in a .{}; accepted: a type of 32 or 64 bits, or a "
                                   "mask such as 0xFF(name)",
                                   name_of(variable->type)));
  }
  variable->init.push_back(value);
}

// name, name+4, generic(name), generic(name)+4.
void Parser::parse_initial_address(Initializer* value) {
  Token name = lexer_.take();
  value->kind = Initializer::Kind::kAddress;
  if (name.text == "generic" && lexer_.accept('(')) {
    value->generic = true;
    name = lexer_.expect_name("a variable in generic()");
    lexer_.expect(')', "the variable of generic()");
  }
  value->symbol = name.text;
  while (lexer_.peek().is('+') || lexer_.peek().is('-')) {
    const Token sign = lexer_.take();
    const Constant offset = parse_term(lexer_);
    if (offset.is_float) lexer_.fail(sign, "an offset that is a float; accepted: an integer");
    value->integer += sign.is('-') ? -offset.integer : offset.integer;
  }
  name_uses_.push_back({name.text, name.line, true});
}

// 0xFF00(name): one byte of an address or of a constant.
void Parser::parse_masked(const Token& mask, Initializer* value) {
  const uint64_t bits = parse_number(lexer_, mask).integer;
  const int shift = bits == 0 ? 0 : std::countr_zero(bits);
  if (bits == 0 || shift % 8 != 0 || bits >> shift != 0xFF) {
    lexer_.fail(mask,
                fmt::format("the mask {}; accepted: one whole byte, such as 0xFF00", mask.text));
  }
  lexer_.expect('(', "a mask");
  if (lexer_.peek().is_name() && lexer_.peek().text != "WARP_SZ") {
    parse_initial_address(value);
    value->mask = bits;
  } else {
    const Constant constant = parse_constant(lexer_);
    if (constant.is_float)
      lexer_.fail(mask, "a mask of a float; accepted: of an integer or an address");
    value->integer = constant.integer >> shift & 0xFF;
  }
  lexer_.expect(')', "what a mask is applied to");
}

void Parser::convert_initial(const Token& at, const Constant& constant, const Variable& variable,
                             Initializer* value) const {
  const Type type = variable.type;
  value->integer = constant.integer;
  if (!is_float(type)) {
    // Of floats, an untyped variable takes the bits.
    const int bits = constant.is_single ? 32 : 64;
    const bool is_untyped = type == Type::kB32 || type == Type::kB64;
    if (constant.is_float && (!is_untyped || bits_of(type) != bits)) {
      lexer_.fail(at, fmt::format("a float of {0} bits as the value of a .{1}; accepted: an "
                                  "integer, or a float where the type is .f{0} or .b{0}",
                                  bits, name_of(type)));
    }
    return;
  }
  // Floats of 16 bits and their pairs take none (PTX ISA 5.4.4; ptxas 13.0 refuses them, too).
  if (type != Type::kF32 && type != Type::kF64) {
    lexer_.fail(at, fmt::format("a value of `{}`, which is .{}; accepted: .f32, .f64 and types of "
                                "integers and bits",
                                variable.name, name_of(type)));
  }
  value->kind = Initializer::Kind::kFloat;
  value->is_single = constant.is_single;
  value->real = constant.real;
  if (constant.is_float) return;
  value->real = constant.is_unsigned ? static_cast<double>(constant.integer)
                                     : static_cast<double>(static_cast<int64_t>(constant.integer));
  value->integer = std::bit_cast<uint64_t>(value->real);
}

}  // namespace ptxemu::parse
