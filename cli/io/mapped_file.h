// A regular file, mapped for reading: nothing is allocated that the file does not hold.
#pragma once

#include <cstddef>
#include <string>

namespace fa4::cli {

class MappedFile {
 public:
  // Throws Failure{kBadInput}: "cannot be read: No such file or directory; accepted: <accepted>".
  explicit MappedFile(const std::string& path,
                      const char* accepted = "FILE.npy or FILE.safetensors:NAME");
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fa4::cli
