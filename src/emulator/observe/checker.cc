// The observer that a launch with checks has: it gives each event to the hazards of its cluster.
#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/global_hazards.h"
#include "emulator/observe/grid_dependencies.h"
#include "emulator/observe/hazards.h"
#include "emulator/observe/wgmma_fences.h"

namespace ptxemu {

namespace {

// Phases of named barriers and of the cluster's, as keys.
uint64_t barrier_key(const Exec& exec, uint32_t number, uint64_t generation) {
  return uint64_t{exec.cta->rank} << 56 | uint64_t{number + 1} << 48 | generation;
}
uint64_t cluster_key(uint64_t generation) { return uint64_t{0xff} << 56 | generation; }

class Checker final : public Observer {
 public:
  explicit Checker(Launch& launch)
      : launch_(launch), global_(launch), grids_(launch), wgmma_users_(*launch.code) {
    for (const auto& [name, function] : launch.code->functions) {
      reads_unwritten_ |= !function->unwritten.empty();
    }
  }

  void launch_end() override { launch_.earlier_grids = grids_.history(); }
  void cluster_start(Cluster& cluster) override {
    auto hazards = std::make_unique<ClusterHazards>(launch_, cluster, global_);
    global_.start(cluster.index, hazards.get());
    hazards_.emplace(&cluster, std::move(hazards));
    if (!wgmma_users_.any() && !reads_unwritten_) return;
    for (const auto& cta : cluster.ctas) {
      for (const auto& warp : cta->warps) warp->watched = true;
    }
  }
  void cluster_end(Cluster& cluster) override {
    auto& hazards = hazards_.at(&cluster);
    hazards->end();
    end_of_dependencies(cluster, *hazards);
    if (global_.end(cluster.index)) {
      hazards->drop_shadows();
      ended_.push_back(std::move(hazards));
    }
    hazards_.erase(&cluster);
    current_ = nullptr;
  }
  void warp_exit(const Exec& exec, const Insn& insn) override {
    of(*exec.cluster).warp_exit(exec, insn);
  }
  void access(const Exec& exec, const Insn& insn, const MemoryAccess& access) override {
    ClusterHazards& hazards = of(*exec.cluster);
    if (access.space == MemoryAccess::Space::kGlobal) {
      grids_.access(exec, insn, access, hazards.known_to(exec.warp->agent));
    }
    hazards.access(exec, insn, access);
  }
  void fence(const Exec& exec, const Insn&, const Fence& fence) override {
    of(*exec.cluster).fence(exec, fence);
  }
  void watched_instruction(const Exec& exec, const Insn& insn) override {
    of(*exec.cluster).watched(exec, insn, wgmma_users_);
  }
  void warp_sync(const Exec& exec, const Insn& insn) override {
    if (kind_of(insn) == InstructionKind::kWgmma) of(*exec.cluster).wgmma_issued(exec, insn);
  }
  void issue(Cluster& cluster, const AsyncOp& op) override { of(cluster).issue(op); }
  void async_read(Cluster& cluster, const AsyncOp& op, const Region& region) override {
    async_access(cluster, op, region, false);
  }
  void async_write(Cluster& cluster, const AsyncOp& op, const Region& region) override {
    async_access(cluster, op, region, true);
  }
  void op_read_observed(const Exec& exec, const Insn&, uint64_t op) override {
    of(*exec.cluster).op_observed(exec, op, true);
  }
  void op_done_observed(const Exec& exec, const Insn&, uint64_t op) override {
    of(*exec.cluster).op_observed(exec, op, false);
  }
  void mbarrier_init(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                     uint32_t) override {
    of(*exec.cluster).mbarrier_init(exec, insn, cta, offset);
  }
  void mbarrier_inval(const Exec& exec, const Insn&, Cta& cta, uint32_t offset) override {
    of(*exec.cluster).mbarrier_inval(cta, offset);
  }
  void mbarrier_used(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset) override {
    of(*exec.cluster).mbarrier_used(exec, insn, cta, offset);
  }
  void mbarrier_arrive(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                       const ArriveOrder& order) override {
    of(*exec.cluster).mbarrier_arrive(exec, insn, cta, offset, order);
  }
  void mbarrier_async_arrive(const AsyncOp& op, Cta& cta, uint32_t offset, int64_t,
                             uint32_t arrivals) override {
    of(*cta.cluster).mbarrier_async_arrive(op, cta, offset, arrivals != 0);
  }
  void async_done(Cluster& cluster, const AsyncOp& op) override { of(cluster).finished(op); }
  void mbarrier_follows(Cta& cta, uint32_t offset, uint64_t op) override {
    of(*cta.cluster).mbarrier_follows(cta, offset, op);
  }
  void mbarrier_phase(Cta& cta, uint32_t offset) override {
    of(*cta.cluster).mbarrier_phase(cta, offset);
  }
  void mbarrier_observed(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                         const WaitOrder& order) override {
    of(*exec.cluster).mbarrier_observed(exec, insn, cta, offset, order);
  }
  void mbarrier_waits(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                      uint32_t parity) override {
    of(*exec.cluster).mbarrier_waits(exec, insn, cta, offset, parity);
  }
  void mbarrier_overtaken(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset) override {
    of(*exec.cluster).mbarrier_overtaken(exec, insn, cta, offset);
  }
  void tensor_alloc(const Exec&, const Insn&, Cta& cta, uint32_t column,
                    uint32_t columns) override {
    of(*cta.cluster).tensor_alloc(cta, column, columns);
  }
  void tensor_dealloc(const Exec& exec, const Insn& insn, Cta& cta, uint32_t column,
                      uint32_t columns) override {
    of(*exec.cluster).tensor_dealloc(exec, insn, cta, column, columns);
  }
  void pair_used(const Exec& exec, const Insn& insn) override {
    of(*exec.cluster).pair_used(exec, insn);
  }
  void tensor_map_read(const Exec& exec, const Insn& insn, uint64_t address) override {
    global_.tensor_map_read(of(*exec.cluster), exec, insn, address);
  }
  void setmaxnreg(const Exec& exec, const Insn& insn, uint32_t registers) override {
    of(*exec.cluster).setmaxnreg(exec, insn, registers);
  }
  bool knows_release(const Exec& exec) override { return of(*exec.cluster).knows_release(exec); }
  void barrier_arrive(const Exec& exec, const Insn&, uint32_t number,
                      uint64_t generation) override {
    of(*exec.cluster).barrier_arrive(exec, barrier_key(exec, number, generation));
  }
  void barrier_passed(const Exec& exec, const Insn&, uint32_t number,
                      uint64_t generation) override {
    of(*exec.cluster).barrier_passed(exec, barrier_key(exec, number, generation));
  }
  void cluster_arrive(const Exec& exec, const Insn&, uint64_t generation,
                      const ArriveOrder& order) override {
    of(*exec.cluster).cluster_arrive(exec, cluster_key(generation), order.releases);
  }
  void cluster_passed(const Exec& exec, const Insn&, uint64_t generation) override {
    of(*exec.cluster).barrier_passed(exec, cluster_key(generation));
  }
  void grid_wait(const Exec& exec, const Insn&) override {
    of(*exec.cluster).earlier_grids_over(exec.warp->agent);
    grids_.waited();
  }
  void grid_trigger(const Exec& exec, const Insn&) override {
    grids_.triggered(*exec.cta, of(*exec.cluster).known_to(exec.warp->agent).earlier_grids_over);
  }
  void pending_register_touched(const Exec& exec, const Insn& insn, uint64_t op) override {
    of(*exec.cluster).pending_register(exec, insn, op);
  }

 private:
  void async_access(Cluster& cluster, const AsyncOp& op, const Region& region, bool writes) {
    ClusterHazards& hazards = of(cluster);
    if (region.space == Region::Space::kGlobal) {
      grids_.async_access(cluster, op, region, writes, hazards.known_at_issue(op));
    }
    hazards.async_access(op, region, writes);
  }
  // A CTA that ends without griddepcontrol.launch_dependents lets the next launch start then.
  void end_of_dependencies(const Cluster& cluster, const ClusterHazards& hazards) {
    for (const auto& cta : cluster.ctas) {
      const bool waited = std::any_of(cta->warps.begin(), cta->warps.end(), [&](const auto& warp) {
        return hazards.known_to(warp->agent).earlier_grids_over;
      });
      grids_.triggered(*cta, waited);
      grids_.forget(*cta);
    }
  }
  ClusterHazards& of(Cluster& cluster) {
    if (&cluster != current_) {
      current_ = &cluster;
      current_hazards_ = hazards_.at(&cluster).get();
    }
    return *current_hazards_;
  }
  Launch& launch_;
  GlobalHazards global_;
  GridDependencies grids_;
  const WgmmaUsers wgmma_users_;
  bool reads_unwritten_ =
      false;  // some way through the code reads a register that it wrote nowhere
  std::vector<std::unique_ptr<ClusterHazards>> ended_;  // that others may know of
  std::unordered_map<Cluster*, std::unique_ptr<ClusterHazards>> hazards_;
  Cluster* current_ = nullptr;
  ClusterHazards* current_hazards_ = nullptr;
};

}  // namespace

std::unique_ptr<Observer> make_checker(Launch& launch) { return std::make_unique<Checker>(launch); }

}  // namespace ptxemu
