#include "distributed/nccl_communicator.h"

#include <fmt/format.h>

namespace fa4::internal {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclApi& api, NcclApi::Comm comm) : api_(api), comm_(comm) {
    check(api_.comm_count(comm_, &size_), "ncclCommCount");
    check(api_.comm_rank(comm_, &rank_), "ncclCommUserRank");
    check(api_.comm_device(comm_, &device_), "ncclCommCuDevice");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void check_device(const DeviceSpec& device) const override {
    if (device.kind == DeviceKind::kCpu) {
      throw Error(ErrorCode::kNotSupported,
                  "communicator is NCCL's, which moves memory of GPUs; accepted on cpu: one of "
                  "fa4_create_local_communicators");
    }
    const std::string of_nccl = fmt::format("cuda:{}", device_);
    if (device.kind == DeviceKind::kCuda && device.name != of_nccl) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("device {} beside an NCCL communicator of {}; accepted: the device "
                              "that the communicator was made on",
                              device.name, of_nccl));
    }
  }

  // All sends and receives in one group: none waits for another.
  void exchange(const ExchangeStep& step, const Bases& bases, const Memory&,
                void* stream) override {
    if (step.sends.empty() && step.receives.empty()) return;
    check(api_.group_start(), "ncclGroupStart");
    NcclApi::Result failed = 0;
    const char* what = "";
    for (const Message& message : step.sends) {
      if (failed != 0 || message.bytes == 0) continue;
      failed = api_.send(bases.resolve(message.at), message.bytes, NcclApi::kBytes, message.peer,
                         comm_, stream);
      what = "ncclSend";
    }
    for (const Message& message : step.receives) {
      if (failed != 0 || message.bytes == 0) continue;
      failed = api_.receive(bases.resolve(message.at), message.bytes, NcclApi::kBytes, message.peer,
                            comm_, stream);
      what = "ncclRecv";
    }
    const NcclApi::Result ended = api_.group_end();
    check(failed, what);
    check(ended, "ncclGroupEnd");
  }

 private:
  void check(NcclApi::Result result, const char* what) const {
    if (result == 0) return;
    const char* text = api_.error_string(result);
    throw Error(ErrorCode::kDriver,
                fmt::format("{} on rank {}: {} ({}); NCCL_DEBUG=WARN makes NCCL say more", what,
                            rank_, text != nullptr ? text : "unknown error", result));
  }

  const NcclApi& api_;
  NcclApi::Comm comm_;
  int rank_ = 0, size_ = 0, device_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> nccl_communicator(const NcclApi& api, NcclApi::Comm comm) {
  return std::make_shared<NcclCommunicator>(api, comm);
}

}  // namespace fa4::internal
