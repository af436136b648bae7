// The options that choose how the emulated GPU runs, the same for every subcommand.
#pragma once

#include <optional>
#include <string>

#include "options.h"
#include "ptxemu/machine.h"

namespace fa4::cli {

class MachineFlags {
 public:
  // `check` is what --check is when it is not given.
  void declare(Options& options, const char* check);
  // Throws Failure{kBadInput}: option, value, what is accepted.
  ptxemu::MachineOptions options() const;

 private:
  std::string device_ = "emulated:b200", policy_ = "eager", math_ = "hw", check_;
  std::string launch_order_ = "in_order";
  bool reorder_products_ = false;
  std::optional<std::string> seed_, threads_, resident_;
  std::optional<std::string> max_instructions_, max_memory_, max_local_memory_, max_printed_,
      max_call_depth_, max_recorded_;
};

}  // namespace fa4::cli
