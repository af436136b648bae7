// Recursive descent over the tokens of one module. Internal to parse/: parse_module() is the door.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/parse/ast.h"
#include "emulator/parse/constant.h"
#include "emulator/parse/lexer.h"
#include "emulator/parse/scopes.h"

namespace ptxemu::parse {

// What stands before a name: .shared .align 16 .v2 .b32.
struct Declaration {
  Space space = Space::kGlobal;
  Type type = Type::kNone;
  uint32_t vector = 1;
  uint64_t align = 0;  // 0: not given
  bool is_extern = false;
};

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), lexer_(module.text) {}
  void parse();

 private:
  // module_parser.cc
  void parse_header();
  void parse_module_directive();
  void parse_linked(const Token& first);
  void parse_target();
  void parse_alias();
  void parse_file();
  void skip_section();
  void declare_module_variable(Variable variable);
  void check_symbols() const;
  void index_functions();

  // declaration.cc
  Declaration parse_declaration(Space space);
  void parse_qualifier(const Token& token, Declaration* declaration);
  void skip_attribute();
  void skip_pointer_attribute();
  uint64_t parse_align();
  Variable parse_declarator(const Declaration& declaration, const Token& name);
  void parse_dimensions(Variable* variable, std::vector<uint64_t>* dimensions);
  void finish_size(const Token& name, const std::vector<uint64_t>& dimensions,
                   Variable* variable) const;
  void parse_variables(const Declaration& declaration,
                       const std::function<void(Variable)>& declare);
  std::string_view made_name(const Token& at, std::string_view prefix, uint64_t number);

  // initializer.cc
  void parse_initializer(Variable* variable, std::vector<uint64_t> dimensions);
  uint64_t parse_initial_list(size_t level, uint64_t first_element,
                              const std::vector<uint64_t>& dimensions, Variable* variable);
  void parse_initial_value(uint64_t element, Variable* variable);
  void parse_initial_address(Initializer* value);
  void parse_masked(const Token& mask, Initializer* value);
  void convert_initial(const Token& at, const Constant& constant, const Variable& variable,
                       Initializer* value) const;

  // function_parser.cc
  void parse_function(const Token& keyword, bool is_extern);
  std::vector<Variable> parse_params(bool is_entry);
  Variable parse_param(bool is_entry);
  void declare_params(const std::vector<Variable>& params, bool are_results);
  void parse_function_directives(Function* function);
  bool parse_function_directive(const Token& token, Function* function);
  void parse_extents(std::string_view what, uint32_t* extents);
  void add_function(Function function, const Token& name);

  // body.cc
  void parse_body();
  void parse_statement_or_label();
  void parse_label(const Token& name);
  void parse_instruction();
  void parse_guard(Guard* guard);
  void parse_operands(Statement* statement);
  void answer(const LabelUse& use, const Label& label);
  void finish_uses();

  // body_directives.cc
  void parse_body_directive();
  void parse_registers();
  void parse_body_variables(const Token& first, bool is_extern);
  void parse_location();
  void parse_inlined_at(SourceLocation* location);
  void parse_pragma();
  void parse_labelled_directive(const Token& label);
  void parse_branch_targets(uint32_t index);
  void parse_call_targets(uint32_t index);
  void parse_call_prototype();
  std::string_view parse_target_name(uint64_t* count);

  // operand.cc
  struct Context {
    std::string_view word;  // the instruction's first
    bool is_nested = false;
  };
  Operand parse_operand(const Context& context);
  Operand parse_named(const Context& context);
  Operand parse_name(const Token& name, const Context& context);
  Operand parse_symbol(const Token& name, const Symbol& symbol);
  Operand parse_component(const Token& name, const Symbol& symbol);
  Operand parse_special(const Token& name);
  Operand parse_immediate();
  Operand parse_address();
  Operand parse_vector();
  Operand parse_list(const Context& context);
  Operand parse_negated();
  void parse_offset(Operand* operand);
  void parse_index(Operand* operand);
  bool find_module_variable(std::string_view name, Operand* operand) const;

  Module& module_;
  Lexer lexer_;
  std::unordered_map<std::string_view, uint32_t> variables_, functions_;
  bool has_target_ = false;

  // The function that is being parsed.
  Function* function_ = nullptr;
  Scopes* scopes_ = nullptr;
  uint32_t source_ = 0;
  std::unordered_map<uint64_t, uint32_t> places_;  // file, line, column -> index of sources
  std::vector<std::string_view> words_;
  std::vector<Operand> operands_;

  // Names that a function or variable further on may have.
  struct NameUse {
    std::string_view name;
    uint32_t line = 0;
    bool may_be_variable = false;
  };
  std::vector<NameUse> name_uses_;
};

}  // namespace ptxemu::parse
