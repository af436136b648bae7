#include "jit/kernel_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/config.h"
#include "core/error.h"
#include "core/logging.h"
#include "jit/disk_cache.h"
#include "jit/hash.h"
#include "jit/image_file.h"
#include "jit/nvrtc_compiler.h"

namespace fa4::internal {
namespace {

std::string nvrtc_fingerprint() {
  FieldHasher hasher;
  hasher.add(hash_of(embedded_sources())).add(NvrtcCompiler::get().version());
  for (const std::string& flag : NvrtcCompiler::flags()) hasher.add(flag);
  return hasher.hex();
}

KernelCache::Parts process_parts() {
  KernelCache::Parts parts;
  parts.prebuilt = prebuilt_images();
  if (config().cache_enabled) parts.folder = config().cache_dir;
  parts.fingerprint = [] {
    static const std::string* const kFingerprint = new std::string(nvrtc_fingerprint());
    return *kFingerprint;
  };
  parts.compile = [](const KernelSource& source, const std::string& architecture,
                     KernelImage::Kind kind) {
    return NvrtcCompiler::get().compile(source, architecture, kind);
  };
  return parts;
}

// What tells one image from another within a process.
std::string slot_name(const KernelSource& source, const std::string& architecture,
                      KernelImage::Kind kind) {
  return fmt::format("{}\n{}\n{}\n{}", source.main_file, source.name_expression, architecture,
                     static_cast<int>(kind));
}

// "prebuilt for sm_90a: 40 kernels"
std::string count_prebuilt(std::span<const PrebuiltImage> images, const std::string& architecture) {
  const auto count = std::count_if(images.begin(), images.end(), [&](const PrebuiltImage& image) {
    return architecture == image.architecture;
  });
  return fmt::format("prebuilt for {}: {} kernels", architecture, count);
}

// Why there is no image, `error` being why none could be compiled.
std::string explain_no_image(const KernelSource& source, const std::string& architecture,
                             KernelImage::Kind kind, std::span<const PrebuiltImage> prebuilt,
                             const Error& error) {
  if (kind == KernelImage::Kind::kPtx) {
    return fmt::format("{} cannot be compiled to PTX, which is never prebuilt: {}",
                       source.display_name, error.what());
  }
  return fmt::format("{} is not prebuilt for {} and cannot be compiled: {}; {}",
                     source.display_name, architecture, error.what(),
                     count_prebuilt(prebuilt, architecture));
}

}  // namespace

KernelCache& KernelCache::get() {
  static KernelCache* const kCache = new KernelCache(process_parts());
  return *kCache;
}

KernelCache::KernelCache(Parts parts)
    : parts_(std::move(parts)), disk_(std::make_unique<DiskCache>(parts_.folder)) {}

KernelCache::~KernelCache() = default;

void KernelCache::count(int Counts::*which) {
  const std::lock_guard lock(mutex_);
  ++(counts_.*which);
}

KernelCache::Counts KernelCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string KernelCache::key_of(const KernelSource& source, const std::string& architecture,
                                KernelImage::Kind kind) const {
  FieldHasher hasher;
  hasher.add(parts_.fingerprint()).add(source.main_file).add(source.name_expression);
  if (kind == KernelImage::Kind::kPtx) hasher.add("PTX");
  return hasher.add(architecture).add(std::to_string(kImageFormatVersion)).hex();
}

std::shared_ptr<const KernelImage> KernelCache::find_or_compile(const KernelSource& source,
                                                                const std::string& architecture,
                                                                KernelImage::Kind kind) {
  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& found = slots_[slot_name(source, architecture, kind)];
    if (found == nullptr) found = std::make_shared<Slot>();
    slot = found;
  }
  // Who comes second waits here for the first; after a failure the next one tries again.
  const std::lock_guard lock(slot->making);
  if (auto image = image_of(*slot)) {
    count(&Counts::memory);
    return image;
  }
  std::optional<KernelImage> prebuilt;
  if (kind == KernelImage::Kind::kCubin) {
    prebuilt = find_prebuilt(parts_.prebuilt, source, architecture);
  }
  if (prebuilt) count(&Counts::embedded);
  auto image = std::make_shared<const KernelImage>(
      prebuilt ? std::move(*prebuilt) : find_elsewhere(source, architecture, kind));
  const std::lock_guard publish(mutex_);
  slot->image = image;
  return image;
}

std::shared_ptr<const KernelImage> KernelCache::image_of(const Slot& slot) const {
  const std::lock_guard lock(mutex_);
  return slot.image;
}

std::shared_ptr<const KernelImage> KernelCache::find_in_memory(const KernelSource& source,
                                                               const std::string& architecture,
                                                               KernelImage::Kind kind) const {
  const std::string name = slot_name(source, architecture, kind);
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(name);
  return found == slots_.end() ? nullptr : found->second->image;
}

KernelImage KernelCache::find_elsewhere(const KernelSource& source, const std::string& architecture,
                                        KernelImage::Kind kind) {
  std::string key;
  try {
    key = key_of(source, architecture, kind);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCompiler,
                explain_no_image(source, architecture, kind, parts_.prebuilt, error));
  }
  if (auto image = disk_->load(key)) {
    count(&Counts::disk);
    return std::move(*image);
  }
  const DiskCache::Lock lock(*disk_, key, parts_.lock_timeout);
  if (lock.timed_out()) {
    count(&Counts::gave_up_waiting);
    log(1, fmt::format("another process holds the lock of {} for too long: compiling here",
                       source.display_name));
  }
  // Whoever held the lock before has most likely stored it.
  if (auto image = disk_->load(key)) {
    count(&Counts::disk);
    return std::move(*image);
  }
  KernelImage image = parts_.compile(source, architecture, kind);
  count(&Counts::compiled);
  log(2, fmt::format("compiled {} for {} in {:.3f} s", source.display_name, architecture,
                     image.compile_seconds));
  if (disk_->enabled() && !disk_->store(key, image)) {
    log(1, fmt::format("{} could not be kept in {}", source.display_name, disk_->folder()));
  }
  return image;
}

std::vector<KernelCache::Entry> KernelCache::list() const {
  std::vector<Entry> entries = disk_->list();
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.display_name, a.architecture, a.path) <
           std::tie(b.display_name, b.architecture, b.path);
  });
  return entries;
}

size_t KernelCache::clear() { return disk_->clear(); }

std::string KernelCache::path() const { return disk_->folder(); }

std::string KernelCache::problem() const { return disk_->problem(); }

}  // namespace fa4::internal
