// Records by number (0, 1 ...), of which those that nobody names any more are forgotten by pages:
// a cluster that runs for long has millions of asynchronous operations, and few of them matter.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ptxemu {

template <class Record>
class PagedRecords {
 public:
  uint64_t size() const { return size_; }
  // Whether it is there: it has been made and not forgotten.
  bool has(uint64_t i) const { return i < size_ && pages_[i / kPage] != nullptr; }
  // It must be there.
  Record& operator[](uint64_t i) { return (*pages_[i / kPage])[i % kPage]; }
  const Record& operator[](uint64_t i) const { return (*pages_[i / kPage])[i % kPage]; }
  void grow_to(uint64_t size) {
    while (pages_.size() * kPage < size) pages_.push_back(std::make_unique<Page>());
    if (size > size_) size_ = size;
  }
  // use(i, record) for every one that is there.
  template <class Use>
  void for_each(const Use& use) const {
    for (uint64_t page = 0; page < pages_.size(); ++page) {
      if (pages_[page] == nullptr) continue;
      const uint64_t end = std::min(size_, (page + 1) * kPage);
      for (uint64_t i = page * kPage; i < end; ++i) use(i, (*this)[i]);
    }
  }
  uint64_t pages() const { return pages_.size(); }
  static uint64_t page_of(uint64_t i) { return i / kPage; }
  // named[i]: a record of page i is named. The last page stays, since it is still filled.
  void forget(const std::vector<bool>& named) {
    for (size_t i = 0; i + 1 < pages_.size(); ++i) {
      if (!named[i]) pages_[i].reset();
    }
  }

 private:
  static constexpr uint64_t kPage = 64;
  using Page = std::array<Record, kPage>;
  std::vector<std::unique_ptr<Page>> pages_;
  uint64_t size_ = 0;
};

}  // namespace ptxemu
