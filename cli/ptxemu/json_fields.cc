#include "ptxemu/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/excerpt.h"
#include "io/duplicate_keys.h"
#include "io/mapped_file.h"

namespace fa4::cli {

using Value = JsonFields::Value;

namespace {

// Of DuplicateKeys.
void refuse_second(const std::string& key) {
  throw bad_input(fmt::format("gives the key \"{}\" twice in one object; accepted: once",
                              fa4::internal::excerpt(key)));
}

// dump() recurses, and a document may be deeper than the host's stack.
bool is_deeper_than(const Value& value, int most) {
  if (!value.is_structured()) return false;
  if (most == 0) return true;
  return std::any_of(value.begin(), value.end(),
                     [most](const Value& inner) { return is_deeper_than(inner, most - 1); });
}

}  // namespace

std::string json_excerpt(const Value& value) {
  constexpr int kMostDepth = 32;
  if (is_deeper_than(value, kMostDepth)) {
    return fmt::format("a value of more than {} levels", kMostDepth);
  }
  std::string text = value.dump(-1, ' ', false, Value::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool json_integer(const Value& value, int64_t low, int64_t high, int64_t* result) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return false;
  }
  *result = value.get<int64_t>();
  return *result >= low && *result <= high;
}

Value read_json(const std::string& path) {
  const MappedFile file(path, "a JSON file");
  const char* text = reinterpret_cast<const char*>(file.data());
  try {
    return Value::parse(text, text + file.size(), refuse_duplicate_keys<Value>(refuse_second));
  } catch (const Value::exception& error) {  // numbers that no double holds are not parse errors
    std::string what = error.what();
    const size_t name = what.find("] ");
    if (name != std::string::npos) what = what.substr(name + 2);
    throw bad_input(fmt::format("is not JSON: {}; accepted: a JSON document", what));
  }
}

JsonFields::JsonFields(const Value& object, std::string where,
                       std::initializer_list<std::string_view> accepted)
    : object_(&object), where_(std::move(where)) {
  const std::string keys = fmt::format("{}", fmt::join(accepted, ", "));
  if (!object.is_object()) {
    throw bad_input(fmt::format("{} {}; accepted: an object with the keys {}",
                                where_.empty() ? "the document" : where_, json_excerpt(object),
                                keys));
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(accepted.begin(), accepted.end(), key) == accepted.end()) {
      throw bad_input(fmt::format("{}: unknown key; accepted: {}", this->where(key), keys));
    }
  }
}

std::string JsonFields::where(std::string_view key) const {
  const std::string shown = fa4::internal::excerpt(key);
  return where_.empty() ? shown : fmt::format("{}.{}", where_, shown);
}

Failure JsonFields::refuse(std::string_view key, const std::string& accepted) const {
  return bad_input(
      fmt::format("{} {}; accepted: {}", where(key), json_excerpt(value(key)), accepted));
}

const Value& JsonFields::value(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) {
    throw bad_input(fmt::format("{}: is missing; accepted: \"{}\" in {}", where(key), key,
                                where_.empty() ? "the document" : where_));
  }
  return *found;
}

std::string JsonFields::text(std::string_view key) const {
  const Value& found = value(key);
  if (!found.is_string() || found.get_ref<const std::string&>().empty()) {
    throw refuse(key, "a string that is not empty");
  }
  // The operating system would end a file's name there, and another one would be meant.
  if (found.get_ref<const std::string&>().find('\0') != std::string::npos) {
    throw refuse(key, "a string without the character \\u0000");
  }
  return found.get<std::string>();
}

std::string JsonFields::text(std::string_view key, std::string_view otherwise) const {
  return has(key) ? text(key) : std::string(otherwise);
}

int64_t JsonFields::integer(std::string_view key, int64_t low, int64_t high) const {
  int64_t result = 0;
  if (!json_integer(value(key), low, high, &result)) {
    throw refuse(key, fmt::format("a whole number from {} to {}", low, high));
  }
  return result;
}

int64_t JsonFields::integer(std::string_view key, int64_t low, int64_t high,
                            int64_t otherwise) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

std::vector<int64_t> JsonFields::integers(std::string_view key, size_t least, size_t most,
                                          int64_t low, int64_t high) const {
  const Value& found = value(key);
  std::vector<int64_t> numbers;
  bool good = found.is_array() && found.size() >= least && found.size() <= most;
  for (size_t i = 0; good && i < found.size(); ++i) {
    numbers.push_back(0);
    good = json_integer(found[i], low, high, &numbers.back());
  }
  if (!good) {
    const std::string count =
        least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
    if (most == 0) throw refuse(key, "an empty array");
    throw refuse(key, fmt::format("an array of {} whole number{} from {} to {}", count,
                                  most == 1 ? "" : "s", low, high));
  }
  return numbers;
}

const Value& JsonFields::array(std::string_view key) const {
  const Value& found = value(key);
  if (!found.is_array()) throw refuse(key, "an array");
  return found;
}

}  // namespace fa4::cli
