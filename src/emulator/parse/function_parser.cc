// Kernels and functions: names, parameters, directives ("Kernel and Function Directives",
// "Performance- Tuning Directives", "Cluster Dimension Directives"; PTX ISA 11.2, 11.4, 11.7).
#include <fmt/format.h>

#include <algorithm>

#include "emulator/parse/parser.h"

namespace ptxemu::parse {
namespace {

constexpr std::string_view kFunctionDirectives =
    ".maxntid, .reqntid, .minnctapersm, .maxnctapersm, .maxnreg, .reqnctapercluster, "
    ".explicitcluster, .maxclusterrank, .blocksareclusters, .noreturn, .abi_preserve, "
    ".abi_preserve_control, .pragma";

}  // namespace

// From after .entry or .func: .func (results) name (params) directives { body }, or ; for the body.
void Parser::parse_function(const Token& keyword, bool is_extern) {
  Function function;
  function.line = keyword.line;
  function.is_entry = keyword.text == "entry";
  function.sources.resize(1);
  Scopes scopes(function);
  function_ = &function;
  source_ = 0;
  places_.clear();
  scopes_ = &scopes;
  scopes.open();
  while (lexer_.peek().is_dot() && lexer_.peek().text == "attribute") {
    lexer_.take();
    skip_attribute();
  }
  if (!function.is_entry && lexer_.peek().is('(')) {
    function.results = parse_params(false);
  }
  const Token name = lexer_.expect_name(fmt::format("a name after .{}", keyword.text));
  function.name = name.text;
  if (lexer_.peek().is('(')) function.params = parse_params(function.is_entry);
  declare_params(function.results, true);
  declare_params(function.params, false);
  parse_function_directives(&function);
  function.is_declaration = lexer_.accept(';');
  if (!function.is_declaration) {
    if (is_extern) lexer_.fail_next("a body of an .extern function; accepted: ';'");
    // Its own body may name it.
    functions_.try_emplace(name.text, UINT32_MAX);
    parse_body();
  }
  function_ = nullptr;
  scopes_ = nullptr;
  add_function(std::move(function), name);
}

// A definition takes the place of a declaration; a declaration of what is known adds nothing.
void Parser::add_function(Function function, const Token& name) {
  if (variables_.count(name.text) != 0) {
    lexer_.fail(name, fmt::format("`{}` is a variable already; accepted: another name", name.text));
  }
  const uint32_t index = static_cast<uint32_t>(module_.functions.size());
  uint32_t& known = functions_.try_emplace(name.text, UINT32_MAX).first->second;
  if (known == UINT32_MAX) {
    known = index;
    module_.functions.push_back(std::move(function));
    return;
  }
  Function& first = module_.functions[known];
  if (function.is_declaration) return;
  if (!first.is_declaration) {
    lexer_.fail(name, fmt::format("`{}` is defined twice, first in line {}; accepted: once",
                                  name.text, first.line));
  }
  first = std::move(function);
}

// (.param .b32 a, .reg .b32 b)
std::vector<Variable> Parser::parse_params(bool is_entry) {
  std::vector<Variable> params;
  lexer_.expect('(', "a function's name");
  if (lexer_.accept(')')) return params;
  do {
    params.push_back(parse_param(is_entry));
  } while (lexer_.accept(','));
  lexer_.expect(')', "the parameters");
  return params;
}

Variable Parser::parse_param(bool is_entry) {
  const Token space = lexer_.take();
  const bool is_register = space.is_dot() && space.text == "reg" && !is_entry;
  if (!is_register && !(space.is_dot() && space.text == "param")) {
    lexer_.fail(
        space, fmt::format("expected a parameter; accepted: .param{}", is_entry ? "" : " or .reg"));
  }
  const Declaration declaration = parse_declaration(is_register ? Space::kReg : Space::kParam);
  const Token name = lexer_.expect_name("a parameter's name");
  if (is_register && declaration.vector > 1) {
    lexer_.fail(
        name, "a vector register as a parameter is not supported; accepted: a register or a .param",
        ErrorCode::kUnknownForm);
  }
  if (!is_register) return parse_declarator(declaration, name);
  Variable variable;
  variable.name = name.text;
  variable.space = Space::kReg;
  variable.type = declaration.type;
  variable.bytes = static_cast<uint64_t>(bytes_of(declaration.type));
  variable.align = variable.bytes;
  variable.line = name.line;
  return variable;
}

// Names of parameters are those of the body's outermost scope.
void Parser::declare_params(const std::vector<Variable>& params, bool are_results) {
  std::vector<uint32_t>& registers =
      are_results ? function_->result_registers : function_->param_registers;
  for (size_t i = 0; i < params.size(); ++i) {
    const Variable& param = params[i];
    const bool is_register = param.space == Space::kReg;
    registers.push_back(is_register ? static_cast<uint32_t>(function_->registers.size())
                                    : kNoRegister);
    const Symbol::Kind kind = are_results ? Symbol::Kind::kResult : Symbol::Kind::kParameter;
    const bool is_new = is_register
                            ? scopes_->declare_register(param.name, param.type, 1)
                            : scopes_->declare(param.name, {kind, static_cast<uint32_t>(i), 1});
    // _ names nothing.
    if (!is_new && param.name != "_") {
      lexer_.fail(lexer_.token_of(param.name, param.line),
                  fmt::format("the parameter `{}` is declared twice; accepted: once", param.name));
    }
  }
}

void Parser::parse_function_directives(Function* function) {
  while (lexer_.peek().is_dot()) {
    const Token token = lexer_.take();
    if (parse_function_directive(token, function)) continue;
    lexer_.fail(token,
                fmt::format("unknown directive `.{}` of a function; accepted: {}", token.text,
                            kFunctionDirectives),
                ErrorCode::kUnknownForm);
  }
}

bool Parser::parse_function_directive(const Token& token, Function* function) {
  const std::string_view word = token.text;
  const auto number = [&] {
    return static_cast<uint32_t>(parse_count(lexer_, fmt::format(".{}", word), UINT32_MAX));
  };
  if (word == "maxntid") {
    parse_extents(word, function->maxntid);
  } else if (word == "reqntid") {
    parse_extents(word, function->reqntid);
  } else if (word == "reqnctapercluster") {
    parse_extents(word, function->reqnctapercluster);
  } else if (word == "maxclusterrank") {
    function->maxclusterrank = number();
  } else if (word == "minnctapersm") {
    function->minnctapersm = number();
  } else if (word == "maxnreg") {
    function->maxnreg = number();
  } else if (word == "maxnctapersm" || word == "abi_preserve" || word == "abi_preserve_control") {
    number();  // advice to a register allocator
  } else if (word == "explicitcluster") {
    function->explicitcluster = true;
  } else if (word == "blocksareclusters") {
    function->blocksareclusters = true;
  } else if (word == "noreturn") {
    function->is_noreturn = true;
  } else if (word == "pragma") {
    parse_pragma();
  } else {
    return false;
  }
  return true;
}

// nx, ny, nz: what is not given is 1.
void Parser::parse_extents(std::string_view what, uint32_t* extents) {
  const std::string name = fmt::format("an extent of .{}", what);
  int given = 0;
  do {
    const Token first = lexer_.peek();
    if (given == 3)
      lexer_.fail(first, fmt::format("a fourth number after .{}; accepted: one to three", what));
    extents[given++] = static_cast<uint32_t>(parse_count(lexer_, name, UINT32_MAX, 1));
  } while (lexer_.accept(','));
  for (; given < 3; ++given) extents[given] = 1;
}

}  // namespace ptxemu::parse
