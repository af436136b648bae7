// Directives in a body: registers, variables, target lists, source locations ("Control Flow
// Directives", "Debugging Directives"; PTX ISA 11.3, 11.5).
#include <fmt/format.h>

#include "emulator/parse/parser.h"

namespace ptxemu::parse {
namespace {

constexpr uint64_t kMaxRegisters = 1'000'000'000;
constexpr std::string_view kBodyDirectives =
    ".reg, .shared, .local, .param, .global, .const, .loc, .pragma, and after a label "
    ".branchtargets, .calltargets, .callprototype";

Space body_space(std::string_view word) {
  return word == "shared"   ? Space::kShared
         : word == "local"  ? Space::kLocal
         : word == "param"  ? Space::kParam
         : word == "global" ? Space::kGlobal
         : word == "const"  ? Space::kConst
                            : Space::kGeneric;
}

uint64_t place_key(const SourceLocation& place) {
  return uint64_t{place.file} << 48 ^ uint64_t { place.line } << 16 ^ place.column;
}

}  // namespace

void Parser::parse_body_directive() {
  const Token token = lexer_.take();
  const std::string_view word = token.text;
  if (word == "reg") return parse_registers();
  if (word == "loc") return parse_location();
  if (word == "pragma") return parse_pragma();
  if (body_space(word) != Space::kGeneric) return parse_body_variables(token, false);
  if (word == "extern" && lexer_.peek().is_dot() && lexer_.peek().text == "shared") {
    return parse_body_variables(lexer_.take(), true);
  }
  if (word == "branchtargets" || word == "calltargets" || word == "callprototype") {
    lexer_.fail(token, fmt::format("no label before .{0}; accepted: NAME: .{0}", word));
  }
  lexer_.fail(token,
              fmt::format("unknown directive `.{}` in a body; accepted: {}", word, kBodyDirectives),
              ErrorCode::kUnknownForm);
}

// .reg .b32 a, %r<10>;
void Parser::parse_registers() {
  const Declaration declaration = parse_declaration(Space::kReg);
  do {
    const Token name = lexer_.expect_name("a register's name");
    bool is_new = false;
    if (lexer_.accept('<')) {
      const uint64_t count = parse_range_count(lexer_, "a number of registers", kMaxRegisters);
      is_new = scopes_->declare_registers(name.text, static_cast<uint32_t>(count), declaration.type,
                                          declaration.vector);
    } else {
      is_new = scopes_->declare_register(name.text, declaration.type, declaration.vector);
    }
    if (!is_new) {
      lexer_.fail(name,
                  fmt::format("`{}` is declared twice in its scope; accepted: once", name.text));
    }
  } while (lexer_.accept(','));
  lexer_.expect(';', "the registers");
}

void Parser::parse_body_variables(const Token& first, bool is_extern) {
  Declaration declaration = parse_declaration(body_space(first.text));
  declaration.is_extern = is_extern;
  parse_variables(declaration, [&](Variable variable) {
    const uint32_t index = static_cast<uint32_t>(function_->variables.size());
    if (!scopes_->declare(variable.name, {Symbol::Kind::kVariable, index, 1})) {
      lexer_.fail(
          lexer_.token_of(variable.name, variable.line),
          fmt::format("`{}` is declared twice in its scope; accepted: once", variable.name));
    }
    function_->variables.push_back(std::move(variable));
  });
}

// .loc file line column, function_name label+4, inlined_at file line column
void Parser::parse_location() {
  const auto number = [&](std::string_view what) {
    return static_cast<uint32_t>(parse_count(lexer_, what, UINT32_MAX));
  };
  SourceLocation location;
  location.file = number("a file number");
  location.line = number("a line number");
  location.column = number("a column");
  if (lexer_.peek().is(',')) parse_inlined_at(&location);
  source_ = static_cast<uint32_t>(function_->sources.size());
  function_->sources.push_back(location);
  places_[place_key(location)] = source_;
}

void Parser::parse_inlined_at(SourceLocation* location) {
  while (lexer_.accept(',')) {
    const Token what = lexer_.expect_name("function_name or inlined_at");
    if (what.text == "function_name") {
      const Token label = lexer_.take();
      if (!label.is_name() && !label.is_dot())
        lexer_.fail(label, fmt::format("{} after function_name; accepted: a label", shown(label)));
      if (lexer_.accept('+')) parse_count(lexer_, "an offset", UINT64_MAX);
    } else if (what.text == "inlined_at") {
      SourceLocation site;
      site.file = static_cast<uint32_t>(parse_count(lexer_, "a file number", UINT32_MAX));
      site.line = static_cast<uint32_t>(parse_count(lexer_, "a line number", UINT32_MAX));
      site.column = static_cast<uint32_t>(parse_count(lexer_, "a column", UINT32_MAX));
      const auto place = places_.find(place_key(site));
      if (place != places_.end()) location->inlined_at = place->second;
    } else {
      lexer_.fail(what, fmt::format("unknown `{}` in .loc; accepted: function_name, inlined_at",
                                    what.text));
    }
  }
}

// .pragma "nounroll", "...";
void Parser::parse_pragma() {
  do {
    lexer_.expect_string("a string after .pragma");
  } while (lexer_.accept(','));
  lexer_.expect(';', "a .pragma");
}

void Parser::parse_labelled_directive(const Token& label) {
  const Token word = lexer_.take();
  const uint32_t index = static_cast<uint32_t>(function_->targets.size());
  if (!scopes_->declare_label(label.text, {index, true})) {
    lexer_.fail(label, fmt::format("the label `{}` is there twice in its scope; accepted: once",
                                   label.text));
  }
  function_->targets.emplace_back().name = label.text;
  if (word.text == "branchtargets") {
    parse_branch_targets(index);
  } else if (word.text == "calltargets") {
    parse_call_targets(index);
  } else {
    parse_call_prototype();
    function_->targets[index].is_prototype = true;
  }
  lexer_.expect(';', fmt::format("a .{}", word.text));
}

// A name, or NAME<COUNT>: count is then not 0.
std::string_view Parser::parse_target_name(uint64_t* count) {
  const Token name = lexer_.expect_name("a label or function");
  *count = 0;
  if (lexer_.accept('<')) {
    *count = parse_range_count(lexer_, "a number of labels", 65536);
    if (*count == 0) lexer_.fail(name, "a list of no labels; accepted: a count from 1 to 65536");
  }
  return name.text;
}

void Parser::parse_branch_targets(uint32_t index) {
  do {
    const Token first = lexer_.peek();
    uint64_t count = 0;
    const std::string_view name = parse_target_name(&count);
    std::vector<uint32_t>& statements = function_->targets[index].statements;
    for (uint64_t i = 0; i < (count == 0 ? 1 : count); ++i) {
      const std::string_view label = count == 0 ? name : made_name(first, name, i);
      const uint32_t place = static_cast<uint32_t>(statements.size());
      statements.push_back(UINT32_MAX);
      scopes_->use_label({label, true, index, place, first.line});
    }
  } while (lexer_.accept(','));
}

void Parser::parse_call_targets(uint32_t index) {
  do {
    const Token name = lexer_.expect_name("a function");
    function_->targets[index].functions.push_back(name.text);
    name_uses_.push_back({name.text, name.line, false});
  } while (lexer_.accept(','));
}

// (.param .b32 _) _ (.param .b64 _) .noreturn: says how a function looks, which its own header
// does.
void Parser::parse_call_prototype() {
  if (lexer_.peek().is('(')) parse_params(false);
  lexer_.expect_name("_ in a .callprototype");
  if (lexer_.peek().is('(')) parse_params(false);
  Function ignored;
  parse_function_directives(&ignored);
}

}  // namespace ptxemu::parse
