// Variable declarations ("Variables"; PTX ISA 5.4).
#include "emulator/parse/parser.h"

#include <fmt/format.h>

#include <bit>

namespace ptxemu::parse {
namespace {

constexpr uint64_t kMaxAlign = uint64_t{1} << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr size_t kMaxDimensions = 16;
constexpr size_t kMaxMadeNames = 65536;

bool is_opaque(std::string_view word) {
  return word == "texref" || word == "samplerref" || word == "surfref";
}

// What a declaration says of each of its names.
Variable variable_of(const Declaration& declaration, const Token& name) {
  Variable variable;
  variable.name = name.text;
  variable.space = declaration.space;
  variable.type = declaration.type;
  variable.vector = declaration.vector;
  variable.align = declaration.align;
  variable.is_extern = declaration.is_extern;
  variable.line = name.line;
  return variable;
}

}  // namespace

uint64_t Parser::parse_align() {
  const Token first = lexer_.peek();
  const uint64_t align = parse_count(lexer_, "an alignment", kMaxAlign);
  if (!std::has_single_bit(align)) {
    lexer_.fail(first, fmt::format("an alignment of {}; accepted: a power of two", align));
  }
  return align;
}

// From after the space to before the first name: .align 16 .v2 .b32.
Declaration Parser::parse_declaration(Space space) {
  Declaration declaration;
  declaration.space = space;
  const Token first = lexer_.peek();
  if (first.is('[')) {
    lexer_.fail(first,
                "banks of constant memory are not supported; accepted: .const without [bank]",
                ErrorCode::kUnknownForm);
  }
  while (lexer_.peek().is_dot()) parse_qualifier(lexer_.take(), &declaration);
  if (declaration.type == Type::kNone) {
    lexer_.fail_next(
        fmt::format("no type after .{}; accepted: a type such as .b32", name_of(space)));
  }
  return declaration;
}

void Parser::parse_qualifier(const Token& token, Declaration* declaration) {
  const std::string_view word = token.text;
  const bool is_register = declaration->space == Space::kReg;
  if (word == "v2" || word == "v4" || word == "v8") {
    declaration->vector = static_cast<uint32_t>(word[1] - '0');
  } else if (const Type type = type_of(word); type != Type::kNone) {
    if (declaration->type != Type::kNone)
      lexer_.fail(token, "a declaration with two types; accepted: one");
    if (type == Type::kPred && !is_register)
      lexer_.fail(token, "a .pred outside .reg; accepted: a type of 8 bits or more");
    if (type != Type::kPred && bits_of(type) % 8 != 0) {
      lexer_.fail(
          token,
          fmt::format("nothing can be declared .{}; accepted: a type of whole bytes such as .b8",
                      word));
    }
    declaration->type = type;
  } else if (is_register) {
    lexer_.fail(token, fmt::format("unknown `.{}` in a .reg declaration; accepted: .v2, .v4 and a "
                                   "type such as .b32",
                                   word));
  } else if (word == "align") {
    declaration->align = parse_align();
  } else if (word == "attribute") {
    skip_attribute();
  } else if (word == "ptr" && declaration->space == Space::kParam) {
    skip_pointer_attribute();
  } else if (is_opaque(word)) {
    lexer_.fail(
        token,
        fmt::format("textures and surfaces (.{}) are not supported; accepted: a type such as .b32",
                    word),
        ErrorCode::kUnknownForm);
  } else {
    lexer_.fail(token, fmt::format("unknown `.{}` in a declaration; accepted: .align, .attribute, "
                                   ".v2, .v4 and a type such as .b32",
                                   word));
  }
}

// .attribute(.managed), .attribute(.unified(1, 2)): where a host sees it, which changes nothing
// here.
void Parser::skip_attribute() {
  const Token open = lexer_.expect('(', ".attribute");
  for (int depth = 1; depth > 0;) {
    const Token token = lexer_.take();
    if (token.kind == TokenKind::kEnd || token.is(';') || token.is('{')) {
      lexer_.fail(open, "an .attribute has no closing ); accepted: .attribute(...)");
    }
    depth += token.is('(') ? 1 : token.is(')') ? -1 : 0;
  }
}

// .ptr .global .align 16: of what a kernel's parameter points to ("Kernel Parameter Attribute:
// .ptr").
void Parser::skip_pointer_attribute() {
  while (lexer_.peek().is_dot()) {
    const Token token = lexer_.take();
    if (token.text == "align") {
      parse_align();
    } else if (token.text != "global" && token.text != "const" && token.text != "local" &&
               token.text != "shared") {
      lexer_.fail(token, fmt::format("unknown `.{}` after .ptr; accepted: .global, .const, .local, "
                                     ".shared, .align",
                                     token.text));
    }
  }
}

// [4][], after the name. An empty dimension is 0.
void Parser::parse_dimensions(Variable* variable, std::vector<uint64_t>* dimensions) {
  while (lexer_.peek().is('[')) {
    const Token open = lexer_.take();
    if (dimensions->size() == kMaxDimensions) {
      lexer_.fail(open, fmt::format("`{0}` has more than {1} dimensions; accepted: at most {1}",
                                    variable->name, kMaxDimensions));
    }
    uint64_t size = 0;
    if (!lexer_.peek().is(']')) size = parse_count(lexer_, "a dimension", kMaxBytes);
    if (size == 0 && !dimensions->empty()) {
      lexer_.fail(open, "a dimension after the first is left out or 0; accepted: 1 and more");
    }
    variable->is_unsized |= size == 0;
    dimensions->push_back(size);
    lexer_.expect(']', "a dimension");
  }
}

// count, bytes and align from type and dimensions.
void Parser::finish_size(const Token& name, const std::vector<uint64_t>& dimensions,
                         Variable* variable) const {
  const uint64_t element = static_cast<uint64_t>(bytes_of(variable->type)) * variable->vector;
  if (variable->align == 0) variable->align = element;
  uint64_t count = 1;
  for (const uint64_t size : dimensions) {
    if (size != 0 && count > kMaxBytes / size) count = kMaxBytes + 1;
    if (count <= kMaxBytes) count *= size;
  }
  if (count > kMaxBytes / element) {
    lexer_.fail(name, fmt::format("`{0}` is larger than {1} bytes; accepted: at most {1}",
                                  name.text, kMaxBytes));
  }
  variable->count = variable->is_unsized ? 0 : count;
  variable->bytes = variable->count * element;
}

// A name's dimensions and initial value.
Variable Parser::parse_declarator(const Declaration& declaration, const Token& name) {
  Variable variable = variable_of(declaration, name);
  std::vector<uint64_t> dimensions;
  parse_dimensions(&variable, &dimensions);
  finish_size(name, dimensions, &variable);
  if (lexer_.peek().is('=')) {
    const bool may = variable.space == Space::kGlobal || variable.space == Space::kConst;
    if (!may || variable.is_extern) {
      lexer_.fail_next(fmt::format(
          "a value for `{}`; accepted: for .global and .const variables that are not .extern",
          name.text));
    }
    lexer_.take();
    parse_initializer(&variable, std::move(dimensions));
  }
  if (variable.is_unsized && !variable.is_extern && variable.space != Space::kParam)
    lexer_.fail(name, fmt::format("the array `{}` has no size; accepted: a number in its brackets",
                                  name.text));
  return variable;
}

std::string_view Parser::made_name(const Token& at, std::string_view prefix, uint64_t number) {
  if (module_.made_names.size() == kMaxMadeNames) {
    lexer_.fail(at, fmt::format("more than {0} names by NAME<COUNT>; accepted: at most {0}",
                                kMaxMadeNames));
  }
  return module_.made_names.emplace_back(fmt::format("{}{}", prefix, number));
}

// a, b[4], c<3>;
void Parser::parse_variables(const Declaration& declaration,
                             const std::function<void(Variable)>& declare) {
  do {
    const Token name = lexer_.expect_name("a name");
    if (!lexer_.accept('<')) {
      declare(parse_declarator(declaration, name));
      continue;
    }
    const uint64_t count = parse_range_count(lexer_, "a number of variables", kMaxMadeNames);
    for (uint64_t i = 0; i < count; ++i) {
      Token made = name;
      made.text = made_name(name, name.text, i);
      Variable variable = variable_of(declaration, made);
      finish_size(made, {}, &variable);
      declare(std::move(variable));
    }
  } while (lexer_.accept(','));
  lexer_.expect(';', "a declaration");
}

}  // namespace ptxemu::parse
