// For every word of shared memory and every part of a column of tensor memory: who wrote it last
// and who has read it since.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/observe/observer.h"

namespace ptxemu {

// An access: by a warp in one of its epochs, or by an asynchronous operation.
class Who {
 public:
  Who() = default;
  static Who warp(uint32_t agent, uint32_t epoch) { return Who(uint64_t{agent} << 32 | epoch); }
  static Who op(uint64_t id) { return Who(kOp | id); }
  bool none() const { return bits_ == kNone; }
  bool is_op() const { return (bits_ & kOp) != 0 && !none(); }
  uint64_t op_id() const { return bits_ & ~kOp; }
  uint32_t agent() const { return static_cast<uint32_t>(bits_ >> 32); }
  uint32_t epoch() const { return static_cast<uint32_t>(bits_); }
  bool operator==(const Who& other) const { return bits_ == other.bits_; }

 private:
  explicit Who(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t kOp = uint64_t{1} << 63;
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t bits_ = kNone;
};

constexpr uint8_t kAllBytes = 15;  // of a word

struct Touch {
  Who who;
  uint32_t statement = 0;     // Insn::statement; 0: none
  uint8_t bytes = kAllBytes;  // which bytes of the word
  // Of shared memory that a tcgen05.mma reads: the sixteenths of D's lanes that it feeds.
  uint8_t feeds = 0xff;
  uint8_t element = 0;            // MemoryAccess::element
  bool strong : 1 = false;        // relaxed or stronger
  bool atomic : 1 = false;        // an atomic
  bool sums_floats : 1 = false;   // one whose result depends on the order of others
  bool over_plain : 1 = false;    // in global memory: a strong write over one that is plain
  Scope scope : 2 = Scope::kGpu;  // of a strong one

  // What "morally strong" asks for beside the scopes' reach: that both are strong and overlap
  // completely, which two aligned ones of one size do ("Morally strong operations", PTX ISA 8.7.1).
  bool strong_alike(const Touch& other) const {
    return strong && other.strong && !other_size(other);
  }
  bool other_size(const Touch& other) const {
    return element != other.element && element != 0 && other.element != 0;
  }
};

struct Cell {
  // At least the warps of two warpgroups; when there are more, the first is forgotten.
  static constexpr size_t kReaders = 8;
  Touch writer;
  // The plain write under strong ones: they need no order among themselves, but each after it.
  Touch plain;
  std::array<Touch, kReaders> readers;
  uint8_t reader_count = 0;
  uint8_t written = 0;    // bytes that somebody has ever written
  bool mbarrier = false;  // half of an mbarrier that is initialised
};

// The cells of shared memory, a word each, made on first use. Most accesses are of 16 bytes or
// more: four words of one history share a cell until an access leaves some of them out.
class SharedShadow {
 public:
  void resize(size_t words) { blocks_.resize((words + kWords - 1) / kWords); }
  bool empty() const { return blocks_.empty(); }
  size_t size() const { return blocks_.size() * kWords; }
  const Cell& at(size_t word) const {
    const Block& block = blocks_[word / kWords];
    return block.is_split ? (*block.words)[word % kWords] : block.whole;
  }
  // Of this word alone.
  Cell& cell(size_t word) {
    Block& block = blocks_[word / kWords];
    block.split();
    return (*block.words)[word % kWords];
  }
  // use(cell) for every cell that there is.
  template <class Use>
  void for_all(const Use& use) const {
    for (const Block& block : blocks_) {
      if (!block.is_split) {
        use(block.whole);
      } else {
        for (const Cell& cell : *block.words) use(cell);
      }
    }
  }
  // use(cell) for every cell of the words [first, last). `same_after`: afterwards they differ in
  // nothing but `mbarrier`.
  template <class Use>
  void for_cells(size_t first, size_t last, bool same_after, const Use& use) {
    for (size_t word = first; word < last;) {
      Block& block = blocks_[word / kWords];
      const size_t end = std::min(last, (word / kWords + 1) * kWords);
      const bool all = end - word == kWords;
      if (!all) block.split();
      if (!block.is_split) {
        use(block.whole);
      } else {
        for (size_t i = word; i < end; ++i) use((*block.words)[i % kWords]);
        if (all && same_after) block.join();
      }
      word = end;
    }
  }

 private:
  static constexpr size_t kWords = 4;
  struct Block {
    Cell whole;
    std::unique_ptr<std::array<Cell, kWords>> words;  // kept when they are one again
    bool is_split = false;

    void split() {
      if (is_split) return;
      if (words == nullptr) words = std::make_unique<std::array<Cell, kWords>>();
      words->fill(whole);
      is_split = true;
    }
    void join() {
      const auto differs = [&](const Cell& c) { return c.mbarrier != words->front().mbarrier; };
      if (std::any_of(words->begin(), words->end(), differs)) return;
      whole = words->front();
      is_split = false;
    }
  };
  std::vector<Block> blocks_;
};

// Something for every word of global memory, made by pages on first use.
template <class Word>
class PagedWords {
 public:
  Word& operator[](uint64_t word) {
    const uint64_t page = word / kPageWords;
    if (page != last_page_) {
      auto& made = pages_[page];
      if (made == nullptr) made = std::make_unique<Page>();
      last_page_ = page;
      last_ = made.get();
    }
    return (*last_)[word % kPageWords];
  }
  template <class Use>
  void for_all(const Use& use) const {
    for (const auto& [page, words] : pages_) {
      for (const Word& word : *words) use(word);
    }
  }
  size_t size() const { return pages_.size() * kPageWords; }
  uint64_t bytes() const { return pages_.size() * sizeof(Page); }
  // Null: the word's page has not been made.
  const Word* find(uint64_t word) const {
    const auto page = pages_.find(word / kPageWords);
    return page == pages_.end() ? nullptr : &(*page->second)[word % kPageWords];
  }

 private:
  static constexpr uint64_t kPageWords = 256;
  using Page = std::array<Word, kPageWords>;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_page_ = ~uint64_t{0};
  Page* last_ = nullptr;
};

// use(word, bytes of it as a mask) for every word that the bytes from `address` on touch.
template <class Use>
void for_words(uint64_t address, uint64_t bytes, const Use& use) {
  const uint64_t end = address + bytes;
  for (uint64_t word = address / 4; word * 4 < end; ++word) {
    const uint64_t first = std::max(address, word * 4) - word * 4;
    const uint64_t last = std::min(end, word * 4 + 4) - word * 4;
    use(word, static_cast<uint8_t>((1u << last) - (1u << first)));
  }
}

}  // namespace ptxemu
