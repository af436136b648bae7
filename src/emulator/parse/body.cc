// A function's body: scopes, labels, instructions ("Statements"; PTX ISA 4.3).
#include <fmt/format.h>

#include <iterator>

#include "emulator/parse/parser.h"

namespace ptxemu::parse {
namespace {

constexpr uint32_t kMaxDepth = 64;

}  // namespace

void Parser::parse_body() {
  const Token open = lexer_.expect('{', "a function's header");
  while (scopes_->depth() > 0) {
    const Token token = lexer_.peek();
    if (token.is('{')) {
      lexer_.take();
      if (scopes_->depth() == kMaxDepth) {
        lexer_.fail(token,
                    fmt::format("braces nested deeper than {0}; accepted: {0} levels", kMaxDepth));
      }
      scopes_->open();
    } else if (token.is('}')) {
      lexer_.take();
      scopes_->close([&](const LabelUse& use, const Label& label) { answer(use, label); });
    } else if (token.is_dot()) {
      parse_body_directive();
    } else if (token.kind == TokenKind::kEnd) {
      lexer_.fail(open, fmt::format("the body of `{}` has no closing }}; accepted: one for each {{",
                                    function_->name));
    } else {
      parse_statement_or_label();
    }
  }
  finish_uses();
}

void Parser::parse_statement_or_label() {
  const Token token = lexer_.peek();
  if (token.is('@') && lexer_.char_after(token) == '@') return lexer_.skip_line();  // @@DWARF
  if (!token.is_name() && !token.is('@')) {
    lexer_.fail(token, fmt::format("expected a statement, not {}; accepted: an instruction, "
                                   "@predicate, a label, a directive, a brace",
                                   shown(token)));
  }
  parse_instruction();
}

void Parser::parse_label(const Token& name) {
  lexer_.take();  // the colon
  const Token next = lexer_.peek();
  if (next.is_dot() && (next.text == "branchtargets" || next.text == "calltargets" ||
                        next.text == "callprototype")) {
    return parse_labelled_directive(name);
  }
  const uint32_t index = static_cast<uint32_t>(function_->statements.size());
  if (!scopes_->declare_label(name.text, {index, false})) {
    lexer_.fail(
        name, fmt::format("the label `{}` is there twice in its scope; accepted: once", name.text));
  }
  function_->labels.push_back({name.text, index});
}

void Parser::parse_instruction() {
  const Token first = lexer_.peek();
  Statement statement;
  statement.line = first.line;
  if (first.is('@')) parse_guard(&statement.guard);
  const Token name = lexer_.expect_name("an instruction after a predicate");
  if (lexer_.peek().is(':') && !statement.guard.present) return parse_label(name);
  words_.assign(1, name.text);
  while (lexer_.peek().is_dot()) {
    const Token word = lexer_.take();
    if (word.text.empty())
      lexer_.fail(word, "expected a qualifier after the dot; accepted: a word such as .u32");
    words_.push_back(word.text);
  }
  statement.words.assign(words_.begin(), words_.end());
  parse_operands(&statement);
  statement.text = lexer_.text_from(first);
  if (!lexer_.peek().is(';')) {
    lexer_.fail_next(fmt::format("{1} after `{0}`; accepted: ';', or ',' and an operand", name.text,
                                 shown(lexer_.peek())));
  }
  lexer_.take();
  statement.source = source_;
  function_->statements.push_back(std::move(statement));
}

// @p, @!p
void Parser::parse_guard(Guard* guard) {
  lexer_.take();
  guard->present = true;
  guard->negated = lexer_.accept('!');
  const Token name = lexer_.expect_name("a predicate after @");
  Symbol symbol;
  const bool is_known = scopes_->find(name.text, &symbol);
  if (!is_known || symbol.kind != Symbol::Kind::kRegister || symbol.width != 1 ||
      function_->registers[symbol.index].type != Type::kPred) {
    lexer_.fail(name, fmt::format("`{}` is no predicate; accepted after @: a register declared "
                                  ".pred, or ! and one",
                                  name.text));
  }
  guard->reg = symbol.index;
  if (lexer_.peek().is('{')) {
    lexer_.fail_next("a predicate before a block in braces; accepted: before one instruction");
  }
}

// Up to the semicolon. Names that may be labels or functions to come are noted.
void Parser::parse_operands(Statement* statement) {
  if (lexer_.peek().is(';')) return;
  operands_.clear();
  const Context context{statement->words[0], false};
  const uint32_t index = static_cast<uint32_t>(function_->statements.size());
  do {
    const uint32_t line = lexer_.peek().line;
    operands_.push_back(parse_operand(context));
    if (operands_.back().kind != Operand::Kind::kLabel) continue;
    const uint32_t place = static_cast<uint32_t>(operands_.size() - 1);
    scopes_->use_label({operands_.back().text, false, index, place, line});
  } while (lexer_.accept(','));
  statement->operands.assign(std::make_move_iterator(operands_.begin()),
                             std::make_move_iterator(operands_.end()));
}

// A use of a label that a scope has.
void Parser::answer(const LabelUse& use, const Label& label) {
  if (use.in_targets) {
    if (label.is_targets) {
      lexer_.fail(lexer_.token_of(use.name, use.line),
                  fmt::format("`{}` is a list of targets; accepted: a label", use.name));
    }
    function_->targets[use.owner].statements[use.place] = label.index;
    return;
  }
  Operand& operand = function_->statements[use.owner].operands[use.place];
  operand.kind = label.is_targets ? Operand::Kind::kTargets : Operand::Kind::kLabel;
  operand.index = label.index;
}

// What no scope has: functions that are defined later, or mistakes.
void Parser::finish_uses() {
  for (const LabelUse& use : scopes_->open_uses()) {
    const std::string_view word =
        use.in_targets ? "branchtargets" : function_->statements[use.owner].words[0];
    if (word != "call" && word != "mov") {
      lexer_.fail(lexer_.token_of(use.name, use.line),
                  fmt::format("`{}` is not defined here; accepted: a register, variable, parameter "
                              "or label of this scope or one around it",
                              use.name));
    }
    function_->statements[use.owner].operands[use.place].kind = Operand::Kind::kFunction;
    name_uses_.push_back({use.name, use.line, false});
  }
}

}  // namespace ptxemu::parse
