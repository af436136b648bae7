// What is behind the opaque handles of fa4.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attention/forward_op.h"
#include "device/device.h"
#include "fa4/fa4.h"
#include "plan/forward_plan.h"

struct fa4_plan {
  fa4::internal::ForwardPlan plan;
  std::shared_ptr<fa4::internal::Device> device;  // null: the CPU
  std::string kernel_name;
};

struct fa4_op {
  std::shared_ptr<const fa4::internal::ForwardOp> op;
};

struct fa4_device {
  fa4::internal::DeviceSpec spec;
  std::shared_ptr<fa4::internal::Device> device;  // null: the CPU

  // The operations of fa4_forward, the last used first.
  struct Prepared {
    fa4_problem problem;
    std::shared_ptr<const fa4::internal::ForwardOp> op;
  };
  std::mutex mutex;
  std::vector<Prepared> prepared;
};
