// One object of a JSON document, read key by key. Every failure names where in the document, what
// stands there and what is accepted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "failure.h"

namespace fa4::cli {

// The document of a file. Throws Failure{kBadInput} for text that is no JSON, or that gives a key
// twice in one object.
nlohmann::ordered_json read_json(const std::string& path);

class JsonFields {
 public:
  using Value = nlohmann::ordered_json;

  // `where` is the object's path, "" for the document. Throws for anything but an object, and for
  // keys that are not in `accepted`.
  JsonFields(const Value& object, std::string where,
             std::initializer_list<std::string_view> accepted);

  bool has(std::string_view key) const { return object_->contains(key); }
  const Value& value(std::string_view key) const;  // throws when it is missing
  std::string where(std::string_view key) const;   // "buffers.x.save"

  std::string text(std::string_view key) const;  // not empty
  std::string text(std::string_view key, std::string_view otherwise) const;
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  int64_t integer(std::string_view key, int64_t low, int64_t high, int64_t otherwise) const;
  std::vector<int64_t> integers(std::string_view key, size_t least, size_t most, int64_t low,
                                int64_t high) const;
  const Value& array(std::string_view key) const;

  // "<where(key)> <value>: is not ...; accepted: ..."
  Failure refuse(std::string_view key, const std::string& accepted) const;

 private:
  const Value* object_;
  std::string where_;
};

// A value as an error shows it: JSON, cut when long.
std::string json_excerpt(const nlohmann::ordered_json& value);
// A whole number of 64 bits as it is written, signed or not; false for anything else.
bool json_integer(const nlohmann::ordered_json& value, int64_t low, int64_t high, int64_t* result);

}  // namespace fa4::cli
