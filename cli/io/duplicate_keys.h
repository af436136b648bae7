// What refuses a JSON text that gives a key twice in one object: the second one would be lost.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fa4::cli {

// The callback of Json::parse. `refuse(key)` throws.
template <class Json, class Refuse>
class DuplicateKeys {
 public:
  explicit DuplicateKeys(Refuse refuse) : refuse_(std::move(refuse)) {}

  bool operator()(int, typename Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string key = parsed.template get<std::string>();
      if (!open_.back().insert(key).second) refuse_(key);
    }
    return true;
  }

 private:
  Refuse refuse_;
  std::vector<std::set<std::string>> open_;
};
template <class Json, class Refuse>
DuplicateKeys<Json, Refuse> refuse_duplicate_keys(Refuse refuse) {
  return DuplicateKeys<Json, Refuse>(std::move(refuse));
}

}  // namespace fa4::cli
