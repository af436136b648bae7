// What a PTX text says, with names resolved and nothing interpreted: modules, functions,
// statements.
//
// The parser resolves registers (scopes may reuse names), labels and variables; an instruction's
// meaning is the decoder's affair (isa/). Every string_view points into the module's own text, or
// into Module::made_names where the text only implies a name (`.shared .b32 x<4>`).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/parse/types.h"

namespace ptxemu {

// A register that the function uses. `.reg .b32 %r<1000>` makes only those that occur, and
// `.reg .v4 .f32 V` makes four in a row, all called V.
struct Register {
  std::string_view name;  // "%r12", "p"
  Type type = Type::kNone;
};

// A piece of a variable's initial value, of the variable's type. Bytes without a piece are zero.
struct Initializer {
  enum class Kind : uint8_t { kInteger, kFloat, kAddress };
  Kind kind = Kind::kInteger;
  bool is_single = false;    // kFloat: written 0fXXXXXXXX
  bool generic = false;      // kAddress: generic(symbol) + integer, else symbol + integer
  uint64_t integer = 0;      // kInteger, two's complement; kFloat: the bits, of 32 where is_single
  double real = 0;           // kFloat
  std::string_view symbol;   // kAddress: a variable or a function
  uint64_t mask = 0;         // kAddress: 0, or which byte of the address: 0xFF00(symbol)
  uint64_t byte_offset = 0;  // where in the variable it goes
};

// .global, .const, .shared, .local and .param declarations, of a module or of a function body.
struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;  // kReg: a parameter of a .func that is a register
  Type type = Type::kB8;
  uint32_t vector = 1;  // .v2, .v4
  uint64_t count = 1;   // product of the array dimensions
  uint64_t bytes = 0;   // size of the whole; 0 for `.extern .shared name[]`
  uint64_t align = 1;   // a power of two
  bool is_extern = false;
  bool is_unsized = false;  // name[]
  uint32_t line = 0;
  std::vector<Initializer> init;
};

// One operand as written.
struct Operand {
  enum class Kind : uint8_t {
    kRegister,   // index into Function::registers (V.x of a vector register is one of its four)
    kSpecial,    // %tid.x, %laneid, %clock64 ...: `text` without the %
    kInteger,    // 3, 0xff, -1, WARP_SZ: `integer`
    kFloat,      // 1.5, 0f3F800000, 0d...: `real` (0f is widened exactly), bits in `integer`
    kVariable,   // the address of variables[index] + integer; see is_local_variable
    kParameter,  // the address of Function::params[index] + integer
    kResult,     // the address of Function::results[index] + integer
    kFunction,   // functions of the module by name: `text` (calls, function pointers)
    kLabel,      // statement `index` of this function
    kTargets,    // Function::targets[index]: of brx.idx, or the last operand of an indirect call
    kAddress,    // [base + integer]; base is list[0] (register, variable, parameter, integer)
    kVector,     // {a, b, ...}: list. A vector register as a whole is one too
    kPair,       // d|p: list[0], list[1]
    kSink,       // _
    kTensor,     // [base, {c0, c1, ...}] : list[0] is the base operand (+ integer), list[1] a
                 // kVector; list[2], if present, another vector ([tm, {c}, {o}])
    kList,       // (a, b, c) of a call: list
  };
  Kind kind = Kind::kSink;
  bool negated = false;            // !p
  bool is_local_variable = false;  // kVariable: of Function::variables, else of Module::variables
  bool is_single = false;          // kFloat: written 0fXXXXXXXX; `integer` then has 32 bits
  uint32_t index = 0;
  uint64_t integer = 0;
  double real = 0;
  std::string_view text;  // as written, for messages; see kSpecial and kFunction
  std::vector<Operand> list;
};

struct Guard {
  bool present = false;
  bool negated = false;
  uint32_t reg = 0;
};

struct SourceLocation {
  uint32_t file = 0;  // its number in Module::files
  uint32_t line = 0;
  uint32_t column = 0;
  uint32_t inlined_at = 0;  // index into Function::sources of where it was inlined, 0: it was not
};

// One instruction. `words` are the dotted parts: {"ld", "global", "nc", "v4", "f32"};
// a part with :: stays whole ("shared::cta", "mbarrier::complete_tx::bytes").
struct Statement {
  Guard guard;
  std::vector<std::string_view> words;
  std::vector<Operand> operands;
  uint32_t line = 0;
  uint32_t source = 0;    // index into Function::sources, 0: none
  std::string_view text;  // the whole statement as written, guard included, without the semicolon
};

// A named list: `ts: .branchtargets L1, L2;` (brx.idx), `.calltargets`, or a `.callprototype`.
struct TargetList {
  std::string_view name;
  std::vector<uint32_t> statements;         // .branchtargets
  std::vector<std::string_view> functions;  // .calltargets
  bool is_prototype = false;                // .callprototype: any function may be called
};

constexpr uint32_t kNoRegister = UINT32_MAX;

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool is_declaration = false;  // no body (vprintf, __assertfail)
  bool is_noreturn = false;
  std::vector<Variable> params;
  std::vector<Variable> results;  // (.param .b32 r) or (.reg .b32 r): of .func only
  // As long as params and results: the register of one with space kReg, else kNoRegister.
  std::vector<uint32_t> param_registers, result_registers;
  std::vector<Register> registers;
  std::vector<Variable> variables;    // .shared, .local and call .param variables of the body
  std::vector<Statement> statements;  // labels and scopes are gone
  // name, statement index: statements.size() at the end. Scopes may repeat a name.
  std::vector<std::pair<std::string_view, uint32_t>> labels;
  std::vector<TargetList> targets;
  std::vector<SourceLocation> sources;  // [0] is unused
  uint32_t maxntid[3] = {0, 0, 0};      // 0: not given
  uint32_t reqntid[3] = {0, 0, 0};
  uint32_t reqnctapercluster[3] = {0, 0, 0};
  uint32_t maxclusterrank = 0;
  uint32_t minnctapersm = 0;
  uint32_t maxnreg = 0;
  bool explicitcluster = false;
  bool blocksareclusters = false;
  uint32_t line = 0;
};

struct Module {
  std::string text;  // owns every string_view of the module
  std::deque<std::string> made_names;
  std::string file_name;
  uint32_t version = 0;     // 90 for .version 9.0
  std::string_view target;  // "sm_100a"
  std::vector<Variable> variables;
  std::vector<Function> functions;                           // definitions and declarations
  std::vector<std::pair<uint32_t, std::string_view>> files;  // .file number, name
  std::vector<std::pair<std::string_view, std::string_view>> aliases;  // .alias name, function

  // Each function by its name and its aliases: a definition, else a declaration.
  std::unordered_map<std::string_view, const Function*> functions_by_name;

  // Of functions_by_name, else null.
  const Function* find(std::string_view name) const;
};

// Parses a whole PTX text. Throws Error{kSyntax} (or kUnknownForm for a directive of a kind that is
// refused, such as textures) whose message names line, text and what is accepted. The result is
// immutable and may be shared between threads. Time and memory are linear in the text's size, for
// any bytes.
std::unique_ptr<const Module> parse_module(std::string text, std::string file_name = "");

}  // namespace ptxemu
