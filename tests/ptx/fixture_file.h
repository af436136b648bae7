// Fixtures: small kernels with inputs and expected outputs, many rows a file. The format is in
// docs/emulator.md, "Fixtures".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptxemu::fixtures {

// A kernel's text with $names that a row fills in.
struct Template {
  std::string head;   // module scope: variables, functions
  std::string entry;  // directives of the kernel
  std::string body;
};

struct Row {
  std::string where;  // file:line
  std::string origin;
  Template kernel;
  std::map<std::string, std::string> values;
  std::vector<std::string> forms;
  std::string want;  // words, or what a trap or a refusal says
  std::string value(const std::string& key, const std::string& otherwise) const;
  uint32_t number(const std::string& key, uint32_t otherwise) const;
};

// Every text that a pattern stands for: "ld{,.weak}.{b32,u32}" is four forms.
std::vector<std::string> expand(std::string_view pattern);

// Throws std::runtime_error with the line of the first mistake.
std::vector<Row> read_fixtures(const std::string& path);

// The module of one form of a row.
std::string module_text(const Row& row, const std::string& form);

// The bytes that a data description stands for: "bits:N" pseudo-random, "count2:N" and "count4:N"
// numbers from 0 of 2 and 4 bytes, "pick:N:v,v,v" elements of as many hexadecimal digits as v,
// chosen pseudo-randomly, "words:w,w,w" those words. N counts bytes.
std::vector<uint8_t> make_data(std::string_view description);

// Words in hexadecimal, w*n for n equal ones; more than a few dozen: the first, then
// "fnv=" and the FNV-1a hash of all bytes.
std::string describe(const std::vector<uint8_t>& bytes);

}  // namespace ptxemu::fixtures
