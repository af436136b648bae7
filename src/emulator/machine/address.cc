#include <fmt/format.h>

#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

[[noreturn]] void out_of_bounds(int lane, Space space, uint64_t address, uint32_t bytes,
                                const std::string& near) {
  throw Trap{"out-of-bounds",
             fmt::format("{} bytes at {} address 0x{:x}: {}", bytes,
                         space == Space::kGeneric ? "generic" : name_of(space), address, near),
             lane};
}

std::byte* resolve_local(const Exec& exec, int lane, uint64_t address, uint32_t bytes) {
  const uint64_t offset =
      (address & kWindowMask) == kLocalWindow ? address & ~kWindowMask : address;
  for (const Frame* frame = &exec.frame(); frame != nullptr; frame = frame->caller.get()) {
    const uint64_t size = frame->function->local_bytes, inside = offset - frame->local_base;
    if (inside < size && bytes <= size - inside) return frame->local.get() + lane * size + inside;
  }
  out_of_bounds(lane, Space::kLocal, address, bytes,
                fmt::format("{} has {} bytes of local memory here", exec.frame().function->name,
                            exec.frame().local_base + exec.frame().function->local_bytes));
}

// Below kFrameParams the kernel's parameters, above it those of calls, in the frame.
std::byte* resolve_param(const Exec& exec, int lane, uint64_t address, uint32_t bytes,
                         AccessKind kind) {
  const uint64_t place = (address & kWindowMask) == kParamWindow ? address & ~kWindowMask : address;
  if (place < kFrameParams) {
    const uint64_t size = exec.launch->params.size();
    if (kind != AccessKind::kRead) {
      throw Trap{"write-to-parameter",
                 fmt::format("the kernel's parameters are written at offset 0x{:x}", place), lane};
    }
    if (place < size && bytes <= size - place) return exec.launch->params.data() + place;
    out_of_bounds(lane, Space::kParam, address, bytes,
                  fmt::format("the kernel has {} bytes of parameters", size));
  }
  const uint64_t offset = place - kFrameParams, size = exec.frame().function->param_bytes;
  if (offset < size && bytes <= size - offset) {
    return exec.frame().params.get() + lane * size + offset;
  }
  out_of_bounds(
      lane, Space::kParam, address, bytes,
      fmt::format("{} has {} bytes of call parameters", exec.frame().function->name, size));
}

// .shared::cta is the executing CTA's: an address that mapa made is of .shared::cluster.
void report_foreign(const Exec& exec, const Cta& cta) {
  const CodeFunction& function = *exec.frame().function;
  const Insn& insn = function.code[exec.group->pc];
  exec.launch->report(exec, insn, Severity::kError, "not-own-shared",
                      fmt::format("a .shared::cta address of CTA rank {}: only .shared::cluster "
                                  "reaches another CTA",
                                  cta.rank));
}

}  // namespace

Space space_of(uint64_t generic_address) {
  switch (generic_address & kWindowMask) {
    case kSharedWindow: return Space::kSharedCluster;
    case kLocalWindow: return Space::kLocal;
    case kParamWindow: return Space::kParam;
    default: return Space::kGlobal;
  }
}

SharedLocation locate_shared(const Exec& exec, uint64_t address, uint32_t bytes, Space space) {
  const bool is_cta = space == Space::kShared;
  const uint64_t inside =
      (address & kWindowMask) == kSharedWindow ? address & ~kWindowMask : address;
  uint64_t rank = inside >> kRankShift;
  const auto offset = static_cast<uint32_t>(inside & kOffsetMask);
  if (rank == 0 && is_cta && inside == address) rank = exec.cta->rank;
  const auto& ctas = exec.cluster->ctas;
  if (rank >= ctas.size()) {
    throw Trap{"out-of-bounds",
               fmt::format("shared address 0x{:x} is of CTA rank {} of a cluster of {}", address,
                           rank, ctas.size())};
  }
  Cta* cta = ctas[rank].get();
  if (offset > cta->shared_bytes || bytes > cta->shared_bytes - offset) {
    throw Trap{"out-of-bounds",
               fmt::format("{} bytes at shared address 0x{:x}: CTA rank {} has {} bytes of shared "
                           "memory",
                           bytes, address, rank, cta->shared_bytes)};
  }
  if (cta != exec.cta && is_cta && exec.launch->options.check) report_foreign(exec, *cta);
  return {cta, offset};
}

namespace {

std::byte* resolve_shared(const Exec& exec, int lane, Space space, uint64_t address,
                          uint32_t bytes) {
  try {
    return locate_shared(exec, address, bytes, space).host();
  } catch (Trap& trap) {
    trap.lane = lane;
    throw;
  }
}

}  // namespace

std::byte* resolve(const Exec& exec, int lane, Space space, uint64_t address, uint32_t bytes,
                   AccessKind kind, uint32_t align) {
  if (align == 0) align = bytes;
  if (address % align != 0) {
    throw Trap{"misaligned",
               fmt::format("address 0x{:x} is no multiple of {}, as an access of {} bytes needs",
                           address, align, bytes),
               lane};
  }
  if (space == Space::kGeneric) space = space_of(address);
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster: return resolve_shared(exec, lane, space, address, bytes);
    case Space::kLocal: return resolve_local(exec, lane, address, bytes);
    case Space::kParam: return resolve_param(exec, lane, address, bytes, kind);
    default: break;
  }
  if (std::byte* host = exec.launch->memory->find(address, bytes)) return host;
  out_of_bounds(lane, space, address, bytes, exec.launch->memory->describe(address));
}

}  // namespace ptxemu
