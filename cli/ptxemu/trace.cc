#include "ptxemu/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "failure.h"
#include "io/mapped_file.h"

namespace fa4::cli {
namespace {

nlohmann::json read_events(const std::string& path) {
  const MappedFile file(path, "a trace");
  const char* text = reinterpret_cast<const char*>(file.data());
  return nlohmann::json::parse(text, text + file.size()).at("traceEvents");
}

}  // namespace

Traces::~Traces() {
  for (const Temporary& part : parts_) ::unlink(part.path().c_str());
}

std::string Traces::next() {
  if (target_.empty()) return "";
  // Made anew, so that no link which lies there already is followed.
  std::string name = target_ + ".XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) {
    throw bad_input(
        fmt::format("--trace {}: {}: {}; accepted: a file in a directory that can be "
                    "written",
                    target_, name, std::strerror(errno)));
  }
  ::close(fd);
  parts_.emplace_back(name);
  return parts_.back().path();
}

std::string Traces::merged() const {
  if (parts_.size() == 1) {
    const MappedFile file(parts_.front().path(), "a trace");
    return {reinterpret_cast<const char*>(file.data()), file.size()};
  }
  // Each launch numbers its processes from 0; launches are kept apart by a stride.
  constexpr int64_t kProcesses = 1 << 20;
  nlohmann::json all = nlohmann::json::array();
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (nlohmann::json& event : read_events(parts_[i].path())) {
      event["pid"] = event.value("pid", int64_t{0}) + static_cast<int64_t>(i) * kProcesses;
      all.push_back(std::move(event));
    }
  }
  return nlohmann::json{{"traceEvents", std::move(all)}}.dump() + "\n";
}

}  // namespace fa4::cli
