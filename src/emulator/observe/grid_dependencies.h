// Launches that may run beside the ones before them ("griddepcontrol"; PTX ISA 9.7.13.14): what a
// programmatic launch touches before griddepcontrol.wait is ordered with nothing that the earlier
// grids touch, however the machine ran them.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/machine/launch.h"
#include "emulator/observe/shadow.h"

namespace ptxemu {

struct Knowledge;

// What one launch has done to a word of global memory.
struct GridWord {
  struct Touch {
    uint32_t line = 0;   // of the PTX text, the last; 0: nobody
    uint8_t bytes = 0;   // of the word, all that were touched
    bool strong = true;  // all of them: two strong ones are no race
  };
  Touch write, read;
};
using GridAccesses = PagedWords<GridWord>;

// Earlier launches that may not be over when a launch starts.
struct EarlierGrid {
  std::shared_ptr<const GridAccesses> accesses;
  std::string kernel;
  bool over_after_wait = true;  // griddepcontrol.wait waits for it
};
using GridHistory = std::vector<EarlierGrid>;

// Of one launch; `launch.earlier_grids` is what may run beside it.
class GridDependencies {
 public:
  explicit GridDependencies(Launch& launch);

  // Of the lanes of exec.mask; `knows` is what the warp knows.
  void access(const Exec& exec, const Insn& insn, const MemoryAccess& access,
              const Knowledge& knows);
  // `knows` is what the issuing warp knew.
  void async_access(const Cluster& cluster, const AsyncOp& op, const Region& region, bool writes,
                    const Knowledge& knows);
  void waited() { any_waited_ = true; }
  // A CTA lets the next launch start: by griddepcontrol.launch_dependents, or by its end.
  void triggered(const Cta& cta, bool after_wait);
  void forget(const Cta& cta) { triggered_.erase(&cta); }
  // What the next launch, if it is a programmatic one, may run beside.
  std::shared_ptr<const GridHistory> history() const;

 private:
  struct Conflict {
    const EarlierGrid* grid = nullptr;  // null: none
    uint32_t line = 0;
    bool wrote = false;
  };
  Conflict touch(uint64_t address, uint64_t bytes, uint32_t line, bool writes, bool strong,
                 const Knowledge& knows);
  std::string message(const Conflict& conflict, std::string_view access) const;

  Launch& launch_;
  std::shared_ptr<GridAccesses> own_ = std::make_shared<GridAccesses>();
  std::set<const Cta*> triggered_;  // of the clusters that run
  bool any_waited_ = false;
  bool triggers_after_wait_ = true;  // in every CTA
};

}  // namespace ptxemu
