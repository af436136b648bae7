// One file takes the place of another, which is kept until it is known that nobody wants it back.
#pragma once

#include <string>

namespace fa4::cli {

// Moves `file` to `target`, where at every moment the old or the new one is. *old: what the one
// that was there is called now, beside it; empty where there was none. 0, or an errno value: then
// both are where they were.
int replace_file(const std::string& file, const std::string& target, std::string* old);

// The same where a file system cannot exchange two files. Where it has no hard links either, the
// target is missing for a moment.
int replace_without_exchange(const std::string& file, const std::string& target, std::string* old);

}  // namespace fa4::cli
