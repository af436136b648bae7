#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fa4::cli {

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(total), shown_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::step(int64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * done / std::max<int64_t>(total_, 1));
  std::fputs(fmt::format("\r{} [{}{}] {}/{}\x1b[K", label_, std::string(filled, '#'),
                         std::string(kWidth - filled, '.'), done, total_)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace fa4::cli
