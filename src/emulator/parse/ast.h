// What a PTX text says, with names resolved and nothing interpreted: modules, functions,
// statements.
//
// The parser resolves registers (scopes may reuse names), labels and variables; an instruction's
// meaning is the decoder's affair (isa/). Every string_view points into the module's own text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/parse/types.h"

namespace ptxemu {

struct Register {
  std::string_view name;  // "%r12", "p"
  Type type = Type::kNone;
};

// A piece of a variable's initial value.
struct Initializer {
  enum class Kind : uint8_t { kInteger, kFloat, kAddress };
  Kind kind = Kind::kInteger;
  uint64_t integer = 0;      // kInteger, two's complement
  double real = 0;           // kFloat
  std::string_view symbol;   // kAddress: generic(symbol) + integer, or symbol + integer
  bool generic = false;      // kAddress
  uint64_t byte_offset = 0;  // where in the variable it goes
};

// .global, .const, .shared, .local and .param declarations, of a module or of a function body.
struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  uint32_t vector = 1;  // .v2, .v4
  uint64_t count = 1;   // product of the array dimensions
  uint64_t bytes = 0;   // size of the whole; 0 for `.extern .shared name[]`
  uint64_t align = 1;
  bool is_extern = false;
  bool is_unsized = false;  // name[]
  uint32_t line = 0;
  std::vector<Initializer> init;
};

// One operand as written.
struct Operand {
  enum class Kind : uint8_t {
    kRegister,  // index into Function::registers
    kSpecial,   // %tid.x, %laneid, %clock64 ...: `text` without the %
    kInteger,   // 3, 0xff, -1, WARP_SZ: `integer`
    kFloat,     // 1.5, 0f3F800000, 0d...: `real` (0f is widened exactly), bits in `integer`
    kVariable,  // the address of variables[index] + integer
    kFunction,  // functions of the module by name: `text` (calls, function pointers)
    kLabel,     // statement `index` of this function
    kAddress,   // [base + integer]; base is list[0] (register, variable, integer or special)
    kVector,    // {a, b, ...}: list
    kPair,      // d|p: list[0], list[1]
    kSink,      // _
    kTensor,    // [base, {c0, c1, ...}] : list[0] is the base operand, list[1] a kVector;
                // list[2], if present, another vector ([tm, {c}, {o}])
    kList,      // (a, b, c) of a call: list
  };
  Kind kind = Kind::kSink;
  bool negated = false;  // !p
  uint32_t index = 0;
  uint64_t integer = 0;
  double real = 0;
  bool is_local_variable = false;  // kVariable: of Function::variables, else of Module::variables
  std::string_view text;           // as written, for messages; see kSpecial and kFunction
  std::vector<Operand> list;
};

struct Guard {
  bool present = false;
  bool negated = false;
  uint32_t reg = 0;
};

struct SourceLocation {
  uint32_t file = 0;  // index into Module::files by its number
  uint32_t line = 0;
  uint32_t column = 0;
};

// One instruction. `words` are the dotted parts: {"ld", "global", "nc", "v4", "f32"};
// a part with :: stays whole ("shared::cta", "mbarrier::complete_tx::bytes").
struct Statement {
  Guard guard;
  std::vector<std::string_view> words;
  std::vector<Operand> operands;
  uint32_t line = 0;
  uint32_t source = 0;    // index into Function::sources, 0: none
  std::string_view text;  // the whole statement as written
};

// A list of labels: `ts: .branchtargets L1, L2;` (brx.idx) or `.calltargets`.
struct TargetList {
  std::string_view name;
  std::vector<uint32_t> statements;         // .branchtargets
  std::vector<std::string_view> functions;  // .calltargets, or a .callprototype (empty)
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool is_declaration = false;  // no body (vprintf, __assertfail)
  std::vector<Variable> params;
  std::vector<Variable> results;  // (.param .b32 r) or (.reg .b32 r): of .func only
  std::vector<uint32_t> param_registers, result_registers;  // .func with .reg parameters
  std::vector<Register> registers;
  std::vector<Variable> variables;    // .shared, .local and call .param variables of the body
  std::vector<Statement> statements;  // labels and scopes are gone
  std::vector<std::pair<std::string_view, uint32_t>> labels;  // name, statement index
  std::vector<TargetList> targets;
  std::vector<SourceLocation> sources;  // [0] is unused
  uint32_t maxntid[3] = {0, 0, 0};      // 0: not given
  uint32_t reqntid[3] = {0, 0, 0};
  uint32_t reqnctapercluster[3] = {0, 0, 0};
  uint32_t maxclusterrank = 0;
  uint32_t minnctapersm = 0;
  uint32_t maxnreg = 0;
  bool explicitcluster = false;
  uint32_t line = 0;
};

struct Module {
  std::string text;  // owns every string_view of the module
  std::string file_name;
  uint32_t version = 0;     // 90 for .version 9.0
  std::string_view target;  // "sm_100a"
  std::vector<Variable> variables;
  std::vector<Function> functions;                           // definitions and declarations
  std::vector<std::pair<uint32_t, std::string_view>> files;  // .file number, name

  const Function* find(std::string_view name) const;  // a definition, else a declaration, else null
};

// Parses a whole PTX text. Throws Error{kSyntax} (or kUnknownForm for a directive of a kind that is
// refused, such as textures) whose message names line, text and what is accepted. The result is
// immutable and may be shared between threads.
std::unique_ptr<const Module> parse_module(std::string text, std::string file_name = "");

}  // namespace ptxemu
