// What tests of the parser share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emulator/error.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

// A module of version 9.0 for sm_100a: the text begins in line 3.
inline std::unique_ptr<const Module> parse_text(const std::string& text) {
  return parse_module(".version 9.0\n.target sm_100a\n" + text, "test.ptx");
}

// A kernel k(.param .u64 n) with predicates %p, registers %r (32 bits), %rd (64 bits), %f: the
// body's text begins in line 4.
inline std::unique_ptr<const Module> parse_body(const std::string& body) {
  return parse_text(
      ".entry k(.param .u64 n) { .reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>; "
      ".reg .f32 %f<9>;\n" +
      body + "\n}\n");
}

inline std::vector<uint32_t> extents(const uint32_t (&of)[3]) { return {of[0], of[1], of[2]}; }

// The error's whole message; "" where there is none.
inline std::string error_of(const std::string& text) {
  try {
    parse_module(text, "test.ptx");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::string body_error(const std::string& body) {
  try {
    parse_body(body);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace ptxemu
