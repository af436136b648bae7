// The buffers of a launch file in the emulated GPU's memory.
#pragma once

#include <string>
#include <vector>

#include "io/output_files.h"
#include "ptxemu/launch_file.h"
#include "ptxemu/machine.h"

namespace fa4::cli {

// Bytes with their element type and shape: what an .npy holds.
struct BufferContent {
  NpyArray array;  // data null: zeros or nothing
  size_t bytes = 0;
};

class EmulatedBuffers {
 public:
  // Reads every .npy and checks every size; allocates nothing. Throws Failure.
  explicit EmulatedBuffers(const std::vector<BufferSpec>& specs);

  // Claims what is saved (a buffer may replace a file that was read), and keeps other outputs off
  // the files that were read.
  void claim(OutputFiles& outputs) const;
  // Allocates and fills; throws Failure when there is no room.
  void upload(ptxemu::Machine& machine);
  // Hands over what the machine's memory holds now; borrowed from it.
  void save(ptxemu::Machine& machine, OutputFiles& outputs) const;

  // A device address; upload() was called, and the name exists.
  uint64_t address(const BufferAddress& address) const;

 private:
  const std::vector<BufferSpec>& specs_;
  std::vector<BufferContent> contents_;
  std::vector<uint64_t> addresses_;
};

}  // namespace fa4::cli
