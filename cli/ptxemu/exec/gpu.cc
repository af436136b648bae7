#include "ptxemu/exec/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/config.h"
#include "emulator/machine/options.h"
#include "ptxemu/exec/fatbin.h"
#include "ptxemu/exec/graph.h"
#include "ptxemu/report.h"

namespace ptxemu::exec {
namespace {

using Json = nlohmann::ordered_json;

// One JSON document a line, so that nothing is lost when the program ends without its destructors.
void append_to(const std::string& log_file, const Json& line) {
  if (log_file.empty()) return;
  std::ofstream file(log_file, std::ios::app);
  file << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where a kernel is defined in PTX text: ".entry NAME(" or ".entry NAME\n".
bool defines(const std::string& ptx, const std::string& kernel) {
  for (size_t at = ptx.find(kernel); at != std::string::npos; at = ptx.find(kernel, at + 1)) {
    const size_t end = at + kernel.size();
    const bool whole = end == ptx.size() || std::strchr(" (\n\r\t", ptx[end]) != nullptr;
    if (whole && at >= 7 && ptx.compare(at - 7, 7, ".entry ") == 0) return true;
  }
  return false;
}

MachineOptions options_from(const Json& json) {
  MachineOptions options;
  options.device = json.value("device", options.device);
  options.policy = json.value("policy", options.policy);
  options.math = json.value("math", options.math);
  options.seed = json.value("seed", options.seed);
  options.check = json.value("check", options.check);
  options.threads = json.value("threads", options.threads);
  options.max_instructions = json.value("max_instructions", options.max_instructions);
  options.max_memory = json.value("max_memory", options.max_memory);
  options.max_local_memory = json.value("max_local_memory", options.max_local_memory);
  options.max_printed = json.value("max_printed", options.max_printed);
  options.max_call_depth = json.value("max_call_depth", options.max_call_depth);
  options.max_recorded = json.value("max_recorded", options.max_recorded);
  options.launch_order = json.value("launch_order", options.launch_order);
  options.reorder_products = json.value("reorder_products", options.reorder_products);
  options.resident = json.value("resident", options.resident);
  return options;
}

}  // namespace

Gpu& Gpu::get() {
  static Gpu* const gpu = new Gpu;  // outlives the program's own destructors
  return *gpu;
}

Gpu::Gpu() {
  const std::string& text = fa4::internal::config().emulator_exec;
  const Json json = text.empty() ? Json::object() : Json::parse(text);
  ptx_folder_ = json.value("ptx", "");
  log_file_ = json.value("log", "");
  machine_ = std::make_unique<Machine>(options_from(json));
  const DeviceModel& model = machine_->options().device == DeviceModel::h200().name
                                 ? DeviceModel::h200()
                                 : DeviceModel::b200();
  facts_.name = model.product;
  facts_.architecture = model.compute_major * 10 + model.compute_minor;
  facts_.multiprocessors = static_cast<int>(model.multiprocessors);
  facts_.l2_bytes = static_cast<int>(model.l2_bytes);
  facts_.memory_clock_khz = model.memory_clock_khz;
  facts_.memory_bus_bits = model.memory_bus_bits;
  facts_.memory_bytes = model.global_bytes;
}

// fmt::print would throw into the program where its standard error is closed or full.
void Gpu::say(std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');  // of a statement that has several
  std::fputs(fmt::format("ptxemu exec: {}\n", line).c_str(), stderr);
}

int Gpu::missing(const char* call) {
  say(fmt::format("{}: not in the emulated CUDA libraries", call));
  return kNotSupported;
}

std::shared_ptr<LoadedModule> Gpu::add_module(const void* image) {
  auto module = std::make_shared<LoadedModule>();
  try {
    const std::vector<FatEntry> entries = read_image(image);
    const FatEntry* ptx = choose_ptx(entries, facts_.architecture, &module->problem);
    if (ptx != nullptr) {
      module->text = ptx->text;
      module->architecture = ptx->architecture;
    }
  } catch (const std::exception& error) {
    module->problem = error.what();
  }
  return module;
}

int Gpu::ready(LoadedModule& module) {
  const std::lock_guard lock(mutex_);
  if (module.handle != nullptr) return kSuccess;
  if (!module.problem.empty()) return kNoKernelImage;
  try {
    module.handle = machine_->load(std::move(module.text), module.name);
    return kSuccess;
  } catch (const InputError& error) {
    module.problem = error.what();
    refuse(module.problem);
    return kInvalidPtx;
  }
}

// The file of --ptx DIR that defines `kernel`; "" when there is none.
std::string Gpu::replacement(const std::string& kernel) const {
  if (ptx_folder_.empty()) return "";
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(ptx_folder_, ignored)) {
    if (file.path().extension() != ".ptx") continue;
    if (defines(read_file(file.path()), kernel)) return file.path();
  }
  return "";
}

int Gpu::ready(KernelEntry& kernel) {
  const std::lock_guard lock(mutex_);
  if (!kernel.sizes.empty()) return kSuccess;
  const std::string file = kernel.module->problem.empty() ? "" : replacement(kernel.name);
  if (!file.empty()) {
    std::shared_ptr<LoadedModule>& module = replacements_[file];
    if (module == nullptr) {
      module = std::make_shared<LoadedModule>();
      module->name = file;
      module->text = read_file(file);
    }
    kernel.module = module;
  }
  if (!kernel.module->problem.empty()) {
    refuse(fmt::format("kernel {}: its module {}", kernel.name, kernel.module->problem));
    return kNoKernelImage;
  }
  if (const int status = ready(*kernel.module); status != kSuccess) return status;
  const std::vector<std::string> names = machine_->kernels(kernel.module->handle);
  if (std::find(names.begin(), names.end(), kernel.name) == names.end()) {
    return kInvalidDeviceFunction;
  }
  try {
    kernel.sizes = machine_->parameter_sizes(kernel.module->handle, kernel.name);
    return kSuccess;
  } catch (const InputError& error) {
    refuse(fmt::format("kernel {}: {}", kernel.name, error.what()));
    return kInvalidPtx;
  }
}

int Gpu::bind(KernelEntry& kernel, void** arguments, ArgumentBytes* bytes) {
  if (const int status = ready(kernel); status != kSuccess) return status;
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    const auto* data = static_cast<const std::byte*>(arguments[i]);
    bytes->emplace_back(data, data + kernel.sizes[i]);
  }
  return kSuccess;
}

int Gpu::launch(KernelEntry& kernel, const LaunchShape& shape, void** arguments, void* stream) {
  if (const int status = sticky(); status != kSuccess) return status;
  ArgumentBytes bytes;
  if (const int status = bind(kernel, arguments, &bytes); status != kSuccess) return status;
  if (const int status = check_launch(kernel, shape); status != kSuccess) return status;
  KernelWork work{&kernel, shape, std::move(bytes)};
  if (Graph* graph = captured_by(stream)) {
    graph->append(std::move(work), stream);
    return kSuccess;
  }
  const std::lock_guard lock(mutex_);
  const bool beside_last = shape.programmatic && last_kernel_stream_ == stream;
  last_kernel_stream_ = stream;
  return run_now(work, beside_last);
}

int Gpu::run(const KernelWork& work, bool beside_last) {
  const std::lock_guard lock(mutex_);
  last_kernel_stream_.reset();
  if (const int status = check_launch(*work.kernel, work.shape); status != kSuccess) return status;
  return run_now(work, beside_last);
}

int Gpu::facts_of(KernelEntry& kernel, KernelFacts* facts) {
  if (const int status = ready(kernel); status != kSuccess) return status;
  const std::lock_guard lock(mutex_);
  *facts = machine_->facts(kernel.module->handle, kernel.name);
  return kSuccess;
}

int Gpu::blocks_per_multiprocessor(KernelEntry& kernel, uint64_t threads, uint64_t shared_bytes,
                                   int* blocks) {
  if (const int status = ready(kernel); status != kSuccess) return status;
  constexpr uint64_t kMost = UINT32_MAX;  // more than any launch may ask for
  const std::lock_guard lock(mutex_);
  *blocks = static_cast<int>(machine_->ctas_per_multiprocessor(
      kernel.module->handle, kernel.name, static_cast<uint32_t>(std::min(threads, kMost)),
      static_cast<uint32_t>(std::min(shared_bytes, kMost))));
  return kSuccess;
}

int Gpu::count_kernels(LoadedModule& module, size_t* count) {
  if (const int status = ready(module); status != kSuccess) return status;
  const std::lock_guard lock(mutex_);
  *count = machine_->kernels(module.handle).size();
  return kSuccess;
}

int Gpu::sticky() {
  const std::lock_guard lock(mutex_);
  return sticky_;
}

int Gpu::synchronize() {
  const std::lock_guard lock(mutex_);
  machine_->synchronize();
  return sticky_;
}

int Gpu::run_now(const KernelWork& work, bool beside_last) {
  const auto& [entry, shape, arguments] = work;
  const KernelEntry& kernel = *entry;
  if (sticky_ != kSuccess) return sticky_;
  LaunchRequest request;
  request.kernel = kernel.name;
  request.grid = shape.grid;
  request.block = shape.block;
  request.cluster = shape.cluster;
  request.shared_bytes = static_cast<uint32_t>(shape.shared_bytes);  // check_launch: few
  request.programmatic = beside_last;
  try {
    fa4::cli::settle_cluster(*machine_, kernel.module->handle, request);
    const LaunchReport report = machine_->launch(kernel.module->handle, request, arguments);
    std::fwrite(report.printed.data(), 1, report.printed.size(), stdout);
    log(request, report);
    if (report.status == "trap" || report.status == "deadlock") {
      const bool asserts = !report.findings.empty() && report.findings.back().rule == "assert";
      sticky_ = asserts ? kAssert : kLaunchFailure;
    }
    return sticky_;
  } catch (const InputError& error) {
    refuse(fmt::format("kernel {}: {}", kernel.name, error.what()));
    return kInvalidConfiguration;
  }
}

void Gpu::refuse(const std::string& line) const {
  say(line);
  append_to(log_file_, {{"refused", line}});
}

void Gpu::log(const LaunchRequest& request, const LaunchReport& report) const {
  if (log_file_.empty()) return;
  const std::vector<fa4::cli::LaunchResult> results{{request, report}};
  Json line = fa4::cli::report_json(machine_->options(), results);
  line["text"] = fa4::cli::report_text(machine_->options(), results);
  line["passed"] = report.passed();
  append_to(log_file_, line);
}

int Gpu::symbol(LoadedModule& module, const std::string& name, void** address, size_t* bytes) {
  const std::lock_guard lock(mutex_);
  if (sticky_ != kSuccess) return sticky_;
  std::pair<uint64_t, uint64_t> found{0, 0};
  if (module.problem.empty()) {
    if (const int status = ready(module); status != kSuccess) return status;
    found = machine_->symbol(module.handle, name);
  }
  // A module of machine code: its kernels came from elsewhere, and its variables with them.
  for (auto other = replacements_.begin(); !module.problem.empty() && other != replacements_.end();
       ++other) {
    if (found.first == 0 && ready(*other->second) == kSuccess) {
      found = machine_->symbol(other->second->handle, name);
    }
  }
  const auto [at, size] = found;
  if (at == 0) return kNotFound;
  if (address != nullptr) *address = reinterpret_cast<void*>(at);
  if (bytes != nullptr) *bytes = size;
  return kSuccess;
}

int Gpu::enqueue(void* stream, std::function<int()> work, int node_type) {
  if (Graph* graph = captured_by(stream)) {
    graph->append(node_type, std::move(work));
    return kSuccess;
  }
  return work();
}

std::string Gpu::tensor_map(const TensorMapRequest& request, void* map) {
  try {
    const std::array<std::byte, 128> bytes = Machine::encode_tensor_map(request);
    std::memcpy(map, bytes.data(), bytes.size());
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace ptxemu::exec
