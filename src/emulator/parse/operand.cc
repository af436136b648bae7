// Operands of instructions ("Instruction Operands"; PTX ISA 6).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "emulator/parse/parser.h"

namespace ptxemu::parse {
namespace {

using Kind = Operand::Kind;

// "Special Registers"; PTX ISA 10. Sorted.
constexpr std::string_view kSpecials[] = {
    "aggr_smem_size",
    "clock",
    "clock64",
    "clock_hi",
    "cluster_ctaid",
    "cluster_ctarank",
    "cluster_nctaid",
    "cluster_nctarank",
    "clusterid",
    "ctaid",
    "current_graph_exec",
    "dynamic_smem_size",
    "globaltimer",
    "globaltimer_hi",
    "globaltimer_lo",
    "gridid",
    "is_explicit_cluster",
    "laneid",
    "lanemask_eq",
    "lanemask_ge",
    "lanemask_gt",
    "lanemask_le",
    "lanemask_lt",
    "nclusterid",
    "nctaid",
    "nsmid",
    "ntid",
    "nwarpid",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_end",
    "smid",
    "tid",
    "total_smem_size",
    "warpid",
};

// %pm0 to %pm7, %pm0_64 to %pm7_64, %envreg0 to %envreg31, %reserved_smem_offset_0 and _1.
bool is_numbered_special(std::string_view name) {
  const auto number = [&](std::string_view prefix, int limit) {
    if (name.substr(0, prefix.size()) != prefix) return false;
    std::string_view digits = name.substr(prefix.size());
    if (prefix == "pm" && digits.size() > 3 && digits.substr(1) == "_64")
      digits = digits.substr(0, 1);
    if (digits.empty() || digits.size() > 2) return false;
    int value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return false;
      value = value * 10 + (c - '0');
    }
    return value < limit;
  };
  return number("pm", 8) || number("envreg", 32) || number("reserved_smem_offset_", 2);
}

bool is_special(std::string_view name) {
  return std::binary_search(std::begin(kSpecials), std::end(kSpecials), name) ||
         is_numbered_special(name);
}

// .x .y .z .w and .r .g .b .a: which component, 4 for none.
uint32_t component_of(std::string_view word) {
  if (word.size() != 1) return 4;
  const size_t place = std::string_view("xyzwrgba").find(word[0]);
  return place == std::string_view::npos ? 4 : static_cast<uint32_t>(place % 4);
}

Operand make_register(uint32_t index, std::string_view text) {
  Operand operand;
  operand.kind = Kind::kRegister;
  operand.index = index;
  operand.text = text;
  return operand;
}

}  // namespace

Operand Parser::parse_operand(const Context& context) {
  const Token first = lexer_.peek();
  if (first.is('[')) return parse_address();
  if (first.is('{')) return parse_vector();
  if (first.is('(') && context.word == "call") return parse_list(context);
  if (first.is('!')) return parse_negated();
  if (at_constant(lexer_)) return parse_immediate();
  if (first.is_name()) return parse_named(context);
  lexer_.fail(first, fmt::format("expected an operand, not {}; accepted: a register, constant, "
                                 "label or name, [address], {{vector}}",
                                 shown(first)));
}

// A name, or two in d|p.
Operand Parser::parse_named(const Context& context) {
  const Token first = lexer_.take();
  Operand operand = parse_name(first, context);
  if (!lexer_.peek().is('|')) return operand;
  lexer_.take();
  const Token second = lexer_.expect_name("a register or _ after |");
  Operand pair;
  pair.kind = Kind::kPair;
  pair.list.push_back(std::move(operand));
  pair.list.push_back(parse_name(second, {context.word, true}));
  for (const Operand& part : pair.list) {
    if (part.kind != Kind::kRegister && part.kind != Kind::kSink) {
      lexer_.fail(first, "| beside what is no register; accepted: registers, _");
    }
  }
  pair.text = lexer_.text_from(first);
  return pair;
}

Operand Parser::parse_name(const Token& name, const Context& context) {
  Operand operand;
  operand.text = name.text;
  if (name.text == "_") return operand;
  const bool is_label = context.word == "bra" && !context.is_nested;
  Symbol symbol;
  if (!is_label && scopes_->find(name.text, &symbol)) return parse_symbol(name, symbol);
  if (name.text[0] == '%' && is_special(name.text.substr(1))) return parse_special(name);
  if (!is_label && find_module_variable(name.text, &operand)) {
    parse_index(&operand);
    if (!context.is_nested) parse_offset(&operand);
    operand.text = lexer_.text_from(name);
    return operand;
  }
  if (!is_label && functions_.count(name.text) != 0) {
    operand.kind = Kind::kFunction;
    return operand;
  }
  if (context.is_nested || name.text[0] == '%') {
    const bool is_register = name.text[0] == '%';
    lexer_.fail(name, fmt::format("`{}` is not declared; accepted: a {} of this scope or one "
                                  "around it{}",
                                  name.text, is_register ? "register" : "register or variable",
                                  is_register ? ", or a special register such as %tid.x" : ""));
  }
  operand.kind = Kind::kLabel;  // to be found at the end of a scope
  return operand;
}

Operand Parser::parse_symbol(const Token& name, const Symbol& symbol) {
  if (symbol.kind == Symbol::Kind::kRegister) {
    if (lexer_.peek().is_dot()) return parse_component(name, symbol);
    if (symbol.width == 1) return make_register(symbol.index, name.text);
    Operand vector;
    vector.kind = Kind::kVector;
    vector.text = name.text;
    for (uint32_t i = 0; i < symbol.width; ++i) {
      vector.list.push_back(make_register(symbol.index + i, name.text));
    }
    return vector;
  }
  Operand operand;
  operand.kind = symbol.kind == Symbol::Kind::kParameter ? Kind::kParameter
                 : symbol.kind == Symbol::Kind::kResult  ? Kind::kResult
                                                         : Kind::kVariable;
  operand.is_local_variable = symbol.kind == Symbol::Kind::kVariable;
  operand.index = symbol.index;
  parse_index(&operand);
  parse_offset(&operand);
  operand.text = lexer_.text_from(name);
  return operand;
}

// V.x
Operand Parser::parse_component(const Token& name, const Symbol& symbol) {
  const Token word = lexer_.take();
  const uint32_t component = component_of(word.text);
  if (component >= symbol.width || symbol.width == 1) {
    lexer_.fail(word, fmt::format("`{}.{}`: {}", name.text, word.text,
                                  symbol.width == 1
                                      ? "a component of a register that is no vector; accepted: "
                                        "the register's name alone"
                                      : "no component of the vector; accepted: .x, .y, .z, .w"));
  }
  return make_register(symbol.index + component, lexer_.text_from(name));
}

// %tid.x, %laneid: with the components that it has.
Operand Parser::parse_special(const Token& name) {
  Operand operand;
  operand.kind = Kind::kSpecial;
  operand.text = name.text.substr(1);
  if (!lexer_.peek().is_dot()) return operand;
  const Token word = lexer_.peek();
  if (!lexer_.touches(name) || component_of(word.text) == 4) {
    lexer_.fail(word,
                fmt::format("`.{}` after {}; accepted: .x, .y, .z, .w", word.text, name.text));
  }
  lexer_.take();
  operand.text = lexer_.text_from(name).substr(1);
  return operand;
}

Operand Parser::parse_immediate() {
  const Token first = lexer_.peek();
  const Constant constant = parse_constant(lexer_);
  Operand operand;
  operand.kind = constant.is_float ? Kind::kFloat : Kind::kInteger;
  operand.is_single = constant.is_single;
  operand.integer = constant.integer;
  operand.real = constant.real;
  operand.text = lexer_.text_from(first);
  return operand;
}

// !p, or ! and a constant.
Operand Parser::parse_negated() {
  const Token first = lexer_.take();
  if (!lexer_.peek().is_name() || lexer_.peek().text == "WARP_SZ") {
    Operand operand = parse_immediate();
    if (operand.kind != Kind::kInteger)
      lexer_.fail(first, "! before a float; accepted: before a predicate or an integer");
    operand.integer = operand.integer == 0;
    return operand;
  }
  const Token name = lexer_.take();
  Operand operand = parse_name(name, {{}, true});
  if (operand.kind != Kind::kRegister) {
    lexer_.fail(name, fmt::format("`!{}`; accepted: ! before a predicate register", name.text));
  }
  operand.negated = true;
  operand.text = lexer_.text_from(first);
  return operand;
}

// The constants added to or subtracted from an address.
void Parser::parse_offset(Operand* operand) {
  while (lexer_.peek().is('+') || lexer_.peek().is('-')) {
    const Token sign = lexer_.take();
    if (!at_constant(lexer_)) {
      lexer_.fail_next(fmt::format("{1} after {0} in an address; accepted: a constant", sign.punct,
                                   shown(lexer_.peek())));
    }
    const Constant offset = parse_term(lexer_);
    if (offset.is_float) lexer_.fail(sign, "an offset that is a float; accepted: an integer");
    operand->integer += sign.is('-') ? -offset.integer : offset.integer;
  }
}

// name[3]: the element's address ("Arrays as Operands"; PTX ISA 6.4.2).
void Parser::parse_index(Operand* operand) {
  if (!lexer_.peek().is('[')) return;
  const Token open = lexer_.take();
  if (!at_constant(lexer_)) {
    lexer_.fail(open, "an index that is no constant is not supported; accepted: an integer",
                ErrorCode::kUnknownForm);
  }
  const Variable& variable = operand->kind == Kind::kParameter ? function_->params[operand->index]
                             : operand->kind == Kind::kResult  ? function_->results[operand->index]
                             : operand->is_local_variable ? function_->variables[operand->index]
                                                          : module_.variables[operand->index];
  const uint64_t element = static_cast<uint64_t>(bytes_of(variable.type)) * variable.vector;
  operand->integer += parse_count(lexer_, "an index", UINT32_MAX) * element;
  lexer_.expect(']', "an index");
}

bool Parser::find_module_variable(std::string_view name, Operand* operand) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return false;
  operand->kind = Kind::kVariable;
  operand->index = found->second;
  return true;
}

// [base+4], [base, {x, y}], [base, {x, y}, {a, b}]
Operand Parser::parse_address() {
  const Token open = lexer_.take();
  Operand address;
  address.kind = Kind::kAddress;
  const Token first = lexer_.peek();
  if (first.is_name() && first.text != "WARP_SZ") {
    lexer_.take();
    address.list.push_back(parse_name(first, {{}, true}));
    Operand& base = address.list[0];
    if (base.kind == Kind::kSink || base.kind == Kind::kVector || base.kind == Kind::kFunction) {
      lexer_.fail(first, fmt::format("`{}` is no address; accepted: a register, variable, "
                                     "parameter or constant",
                                     first.text));
    }
    parse_offset(&address);
    // A variable's own offset belongs to the address.
    address.integer += base.integer;
    base.integer = 0;
  } else if (at_constant(lexer_)) {
    address.list.push_back(parse_immediate());
    if (address.list[0].kind == Kind::kFloat)
      lexer_.fail(first,
                  "a float is no address; accepted: a register, variable, parameter or integer");
  } else {
    lexer_.fail(first, fmt::format("expected an address after [, not {}; accepted: a register, "
                                   "variable, parameter or constant, and + an offset",
                                   shown(first)));
  }
  while (lexer_.accept(',')) {
    address.kind = Kind::kTensor;
    if (!lexer_.peek().is('{')) {
      lexer_.fail_next(
          fmt::format("{} after the comma of an address; accepted: coordinates in braces",
                      shown(lexer_.peek())));
    }
    address.list.push_back(parse_vector());
  }
  lexer_.expect(']', "an address");
  address.text = lexer_.text_from(open);
  return address;
}

// {a, 1, _}
Operand Parser::parse_vector() {
  const Token open = lexer_.take();
  Operand vector;
  vector.kind = Kind::kVector;
  const size_t first = operands_.size();
  do {
    const Token token = lexer_.peek();
    if (!token.is_name() && !at_constant(lexer_)) {
      lexer_.fail(token, fmt::format("expected a part of a vector, not {}; accepted: a register, "
                                     "a constant, _",
                                     shown(token)));
    }
    if (at_constant(lexer_)) {
      operands_.push_back(parse_immediate());
    } else {
      lexer_.take();
      operands_.push_back(parse_name(token, {{}, true}));
    }
  } while (lexer_.accept(','));
  lexer_.expect('}', "the parts of a vector");
  // The parts wait behind the operands before them, so that the list is made in its size.
  vector.list.assign(std::make_move_iterator(operands_.begin() + first),
                     std::make_move_iterator(operands_.end()));
  operands_.resize(first);
  vector.text = lexer_.text_from(open);
  return vector;
}

// (a, b) of a call
Operand Parser::parse_list(const Context& context) {
  const Token open = lexer_.take();
  Operand list;
  list.kind = Kind::kList;
  if (!lexer_.peek().is(')')) {
    do {
      const Token token = lexer_.peek();
      if (token.is('(') || token.is('[') || token.is('{')) {
        lexer_.fail(
            token,
            "an argument of a call in brackets; accepted: a register, a .param or a constant");
      }
      list.list.push_back(token.is_name() && token.text != "WARP_SZ"
                              ? parse_name(lexer_.take(), {context.word, true})
                              : parse_immediate());
    } while (lexer_.accept(','));
  }
  lexer_.expect(')', "the arguments of a call");
  list.text = lexer_.text_from(open);
  return list;
}

}  // namespace ptxemu::parse
