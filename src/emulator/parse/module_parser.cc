// A module's directives ("PTX Module Directives", "Linking Directives", "Debugging Directives"; PTX
// ISA 11.1, 11.5, 11.6) and its variables.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "emulator/parse/parser.h"

namespace ptxemu {
namespace parse {
namespace {

constexpr std::string_view kModuleDirectives =
    ".visible, .weak, .extern, .common, .entry, .func, .global, .const, .shared, .file, .section, "
    ".pragma, .alias, .target, .address_size";
constexpr std::string_view kRefused[] = {"tex",  "texref", "samplerref", "surfref",
                                         "sreg", "local",  "reg"};

bool is_linkage(std::string_view word) {
  return word == "visible" || word == "weak" || word == "extern" || word == "common";
}

}  // namespace

void Parser::parse() {
  parse_header();
  while (lexer_.peek().kind != TokenKind::kEnd) parse_module_directive();
  if (!has_target_)
    lexer_.fail_next("no .target directive; accepted: one after .version, such as .target sm_90a");
  check_symbols();
  index_functions();
}

// .version major.minor
void Parser::parse_header() {
  const Token first = lexer_.peek();
  if (!first.is_dot() || first.text != "version") {
    lexer_.fail(first, "no .version; accepted: a first line such as .version 9.0");
  }
  lexer_.take();
  const Token number = lexer_.take();
  const std::string_view text = number.text;
  const size_t point = text.find('.');
  const char* end = text.data() + text.size();
  uint32_t major = 0, minor = 0;
  const auto whole = std::from_chars(text.data(), end, major);
  const auto part = std::from_chars(whole.ptr + (whole.ptr < end), end, minor);
  if (number.kind != TokenKind::kNumber || point == std::string_view::npos ||
      whole.ptr != text.data() + point || part.ptr != end || part.ec != std::errc() ||
      whole.ec != std::errc() || major > 99 || minor > 9) {
    lexer_.fail(number,
                fmt::format("{} after .version; accepted: a version such as 9.0", shown(number)));
  }
  module_.version = major * 10 + minor;
}

void Parser::parse_module_directive() {
  const Token token = lexer_.peek();
  if (token.is('@') && lexer_.char_after(token) == '@') return lexer_.skip_line();  // @@DWARF
  if (!token.is_dot()) {
    lexer_.fail(token, fmt::format("expected a directive, not {}; accepted: {}", shown(token),
                                   kModuleDirectives));
  }
  lexer_.take();
  if (token.text == "target") return parse_target();
  if (token.text == "file") return parse_file();
  if (token.text == "section") return skip_section();
  if (token.text == "pragma") return parse_pragma();
  if (token.text == "address_size") {
    if (parse_count(lexer_, "an address size", 64) != 64) {
      lexer_.fail(token, "an address size other than 64; accepted: .address_size 64",
                  ErrorCode::kUnknownForm);
    }
    return;
  }
  if (!has_target_)
    lexer_.fail(
        token,
        "a directive before .target; accepted: .target sm_90a, or another architecture, first");
  if (token.text == "alias") return parse_alias();
  parse_linked(token);
}

// .target sm_90a, debug
void Parser::parse_target() {
  const Token name = lexer_.expect_name("an architecture such as sm_90a after .target");
  if (!has_target_) module_.target = name.text;
  has_target_ = true;
  while (lexer_.accept(',')) lexer_.expect_name("a target option");
}

// .alias name, function;
void Parser::parse_alias() {
  const Token name = lexer_.expect_name("a name after .alias");
  lexer_.expect(',', "the name of an .alias");
  const Token function = lexer_.expect_name("a function after the comma of .alias");
  lexer_.expect(';', "an .alias");
  module_.aliases.push_back({name.text, function.text});
  functions_.try_emplace(name.text, UINT32_MAX);
  name_uses_.push_back({function.text, function.line, false});
}

// .file number "name", timestamp, size
void Parser::parse_file() {
  const uint64_t number = parse_count(lexer_, "a file number", UINT32_MAX);
  const Token name = lexer_.expect_string("a file name in quotes");
  while (lexer_.accept(',')) parse_count(lexer_, "a timestamp or size", UINT64_MAX);
  module_.files.push_back({static_cast<uint32_t>(number), name.text});
}

// .section .debug_info { ... }: data for debuggers, which nothing here reads.
void Parser::skip_section() {
  const Token name = lexer_.take();
  if (!name.is_dot() && !name.is_name())
    lexer_.fail(name, fmt::format("{} after .section; accepted: a name", shown(name)));
  const Token open = lexer_.expect('{', "the name of a .section");
  while (!lexer_.accept('}')) {
    if (lexer_.peek().kind == TokenKind::kEnd)
      lexer_.fail(open, "a .section has no closing }; accepted: one after it");
    lexer_.take();
  }
}

// What may be .visible, .weak, .extern or .common: variables and functions.
void Parser::parse_linked(const Token& first) {
  Token token = first;
  bool is_extern = false;
  while (token.is_dot() && is_linkage(token.text)) {
    is_extern |= token.text == "extern";
    token = lexer_.take();
  }
  if (token.is_dot() && (token.text == "entry" || token.text == "func")) {
    return parse_function(token, is_extern);
  }
  if (token.is_dot() && (token.text == "global" || token.text == "const" ||
                         token.text == "shared" || token.text == "align")) {
    // .align may stand before the space.
    uint64_t align = 0;
    if (token.text == "align") {
      align = parse_align();
      token = lexer_.take();
    }
    const Space space = token.text == "global"   ? Space::kGlobal
                        : token.text == "const"  ? Space::kConst
                        : token.text == "shared" ? Space::kShared
                                                 : Space::kGeneric;
    if (space == Space::kGeneric)
      lexer_.fail(token,
                  fmt::format("{} after .align; accepted: .global, .const, .shared", shown(token)));
    Declaration declaration = parse_declaration(space);
    declaration.is_extern = is_extern;
    if (declaration.align == 0) declaration.align = align;
    return parse_variables(
        declaration, [&](Variable variable) { declare_module_variable(std::move(variable)); });
  }
  const bool is_refused =
      std::find(std::begin(kRefused), std::end(kRefused), token.text) != std::end(kRefused);
  lexer_.fail(token,
              fmt::format("{} {} in a module; accepted: {}",
                          is_refused ? "unsupported directive" : "unknown directive", shown(token),
                          kModuleDirectives),
              ErrorCode::kUnknownForm);
}

// A definition replaces an .extern declaration, and an .extern one adds nothing to what is there.
void Parser::declare_module_variable(Variable variable) {
  const auto [place, is_new] =
      variables_.try_emplace(variable.name, static_cast<uint32_t>(module_.variables.size()));
  const Token name = lexer_.token_of(variable.name, variable.line);
  if (functions_.count(variable.name) != 0) {
    lexer_.fail(name,
                fmt::format("`{}` is a function already; accepted: another name", variable.name));
  }
  if (is_new) {
    module_.variables.push_back(std::move(variable));
    return;
  }
  Variable& known = module_.variables[place->second];
  if (!known.is_extern && !variable.is_extern) {
    lexer_.fail(name, fmt::format("`{}` is defined twice, first in line {}; accepted: once",
                                  variable.name, known.line));
  }
  if (known.space != variable.space) {
    lexer_.fail(name,
                fmt::format("`{0}` in another space than before; accepted: .{1}, as in line {2}",
                            variable.name, name_of(known.space), known.line));
  }
  const uint64_t align = std::max(known.align, variable.align);
  if (known.is_extern) known = std::move(variable);
  known.align = align;
}

void Parser::check_symbols() const {
  for (const NameUse& use : name_uses_) {
    if (functions_.count(use.name) != 0) continue;
    if (use.may_be_variable && variables_.count(use.name) != 0) continue;
    lexer_.fail(lexer_.token_of(use.name, use.line),
                fmt::format("`{}` is not defined; accepted: {}", use.name,
                            use.may_be_variable
                                ? "a variable or function of the module"
                                : "a register, variable or label of its scope, or a function of "
                                  "the module"));
  }
}

// An alias names a function, not another alias. Of what one name stands for, its own function and
// those of its aliases, the first definition counts, else the last declaration.
void Parser::index_functions() {
  auto& index = module_.functions_by_name;
  for (const Function& function : module_.functions) index.emplace(function.name, &function);
  for (const auto& [alias, name] : module_.aliases) {
    const uint32_t place = functions_.at(name);
    if (place == UINT32_MAX) continue;
    const Function*& known = index[alias];
    if (known == nullptr || known->is_declaration) known = &module_.functions[place];
  }
}

}  // namespace parse

const Function* Module::find(std::string_view name) const {
  const auto found = functions_by_name.find(name);
  return found == functions_by_name.end() ? nullptr : found->second;
}

std::unique_ptr<const Module> parse_module(std::string text, std::string file_name) {
  constexpr size_t kMaxText = size_t{1} << 30;
  if (text.size() > kMaxText) {
    throw Error(ErrorCode::kSyntax, 0,
                fmt::format("a PTX text of {} bytes; accepted: at most {}", text.size(), kMaxText));
  }
  // A text that came as a C string may carry its end.
  while (!text.empty() && text.back() == '\0') text.pop_back();
  auto module = std::make_unique<Module>();
  module->text = std::move(text);
  module->file_name = std::move(file_name);
  parse::Parser(*module).parse();
  return module;
}

}  // namespace ptxemu
