#include "ptxemu/buffers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "failure.h"

namespace fa4::cli {
namespace {

std::string option_of(const BufferSpec& spec) { return fmt::format("buffers.{}.save", spec.name); }

BufferContent read_content(const BufferSpec& spec) {
  BufferContent content;
  NpyArray& array = content.array;
  if (spec.source == BufferSpec::Source::kNpy) {
    array = read_npy_array(std::make_shared<const MappedFile>(spec.file, "FILE.npy"));
    if (!spec.descr.empty() && array.item_bytes != spec.item_bytes) {
      throw bad_input(fmt::format("has elements of {} bytes, its dtype says {}; accepted: the same",
                                  array.item_bytes, spec.item_bytes));
    }
  } else {
    array.descr = spec.descr;
    array.item_bytes = spec.item_bytes;
    array.shape = spec.dims;
  }
  content.bytes =
      static_cast<size_t>(count_elements(array.shape, array.item_bytes)) * array.item_bytes;
  return content;
}

}  // namespace

EmulatedBuffers::EmulatedBuffers(const std::vector<BufferSpec>& specs) : specs_(specs) {
  for (const BufferSpec& spec : specs) {
    contents_.push_back(naming(fmt::format("buffers.{}", spec.name), spec.file,
                               [&] { return read_content(spec); }));
  }
}

void EmulatedBuffers::claim(OutputFiles& outputs) const {
  for (const BufferSpec& spec : specs_) {
    if (!spec.file.empty()) outputs.add_input(fmt::format("buffers.{}.npy", spec.name), spec.file);
  }
  for (const BufferSpec& spec : specs_) {
    if (spec.save.empty()) continue;
    if (spec.save.find(".safetensors") != std::string::npos) {
      throw bad_input(fmt::format("{} {}; accepted: FILE.npy", option_of(spec), spec.save));
    }
    outputs.add_tensor(option_of(spec), spec.save, spec.file);
  }
}

void EmulatedBuffers::upload(ptxemu::Machine& machine) {
  uint64_t total = 0;
  for (const BufferContent& content : contents_) total += content.bytes;
  const uint64_t host = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (total > host) {
    throw could_not_run(
        fmt::format("buffers: {} bytes in all, this machine has {} bytes of memory", total, host));
  }
  for (size_t i = 0; i < specs_.size(); ++i) {
    const BufferContent& content = contents_[i];
    try {
      addresses_.push_back(machine.allocate(std::max<size_t>(content.bytes, 1), specs_[i].name));
    } catch (const ptxemu::InputError& error) {
      throw could_not_run(fmt::format("buffers.{}: {}", specs_[i].name, error.what()));
    }
    if (content.bytes == 0) continue;
    if (content.array.data != nullptr) {
      machine.copy_in(addresses_[i], content.array.data, content.bytes);
    } else if (specs_[i].source == BufferSpec::Source::kZeros) {
      machine.fill(addresses_[i], 0, content.bytes);
    } else {
      machine.mark_uninitialised(addresses_[i]);
    }
  }
}

void EmulatedBuffers::save(ptxemu::Machine& machine, OutputFiles& outputs) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].save.empty()) continue;
    const NpyArray& array = contents_[i].array;
    outputs.set_npy(option_of(specs_[i]), array.descr, array.shape,
                    machine.host_view(addresses_[i], contents_[i].bytes), contents_[i].bytes);
  }
}

uint64_t EmulatedBuffers::address(const BufferAddress& address) const {
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const BufferSpec& spec) {
    return spec.name == address.buffer;
  });
  return addresses_[found - specs_.begin()] + static_cast<uint64_t>(address.add);
}

}  // namespace fa4::cli
