// The traces of several launches as one Chrome/Perfetto file.
#pragma once

#include <deque>
#include <string>

#include "io/temporaries.h"

namespace fa4::cli {

class Traces {
 public:
  // `target` is where the whole trace goes; parts are written beside it, under names that nobody
  // can know before, and removed with this object. Empty: nothing is traced.
  explicit Traces(std::string target) : target_(std::move(target)) {}
  ~Traces();
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  // A new file for the next launch; "" when nothing is traced.
  std::string next();
  // The events of all launches, one process each.
  std::string merged() const;

 private:
  std::string target_;
  std::deque<Temporary> parts_;
};

}  // namespace fa4::cli
