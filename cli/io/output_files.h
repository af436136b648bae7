// The files that a command writes: all of them whole, or none.
//
// Each is written to a temporary file beside its target and takes its place. What was there comes
// back where another one cannot, and where the command does not get as far as keep(). Outputs that
// name the same .safetensors file become one file, which replaces what was there.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "io/temporaries.h"
#include "io/tensor_file.h"

namespace fa4::cli {

class OutputFiles {
 public:
  OutputFiles() = default;
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // A file that no output may be.
  void add_input(const std::string& option, const std::string& file);

  // Claims a target and opens its temporary file, so that a bad path is known before the work.
  // Throws Failure{kBadInput}: an input, another output, a directory, a path that cannot be
  // written.
  // `replaces`: the one input that it may be; empty: none.
  void add_tensor(const std::string& option, const std::string& path,
                  const std::string& replaces = "");
  void add_text(const std::string& option, const std::string& path);

  // The content of what was claimed; `data` is borrowed until write() returns. bf16 becomes f4 in
  // a .npy.
  void set_tensor(const std::string& option, FileType type, std::vector<int64_t> shape,
                  const void* data);
  void set_text(const std::string& option, std::string text);
  // A .npy of elements of any type, by numpy's name of it ("<u2"); nothing is converted.
  void set_npy(const std::string& option, std::string descr, std::vector<int64_t> shape,
               const void* data, size_t bytes);

  // To the temporary files; to devices, pipes and open descriptors at once. Throws
  // Failure{kCouldNotRun} when the disk is full.
  void write();
  // Moves what was written to its places, until the object goes. Throws Failure{kBadInput} where a
  // file may not be replaced.
  void publish();
  // For good.
  void keep();

 private:
  struct Item {
    std::string option, path, name, replaces;
    FileType type = FileType::kF32;
    std::vector<int64_t> shape;
    const void* data = nullptr;
    size_t bytes = 0;   // of an .npy with a descr
    std::string descr;  // not empty: the elements are written as they are
    std::string text;
    bool is_text = false;
  };
  struct File {
    std::string target;
    int fd = -1;
    std::unique_ptr<Temporary> temporary;  // none: the target is written directly
    std::vector<Item*> items;
  };
  struct Input {
    std::string option, file;
  };

  void add(Item item, const std::string& file);
  void check_not_input(const std::string& file, const std::string& replaces) const;
  void open(File& file);
  void write_file(File& file);
  Item& item_of(const std::string& option);

  std::vector<Input> inputs_;
  std::deque<Item> items_;
  std::deque<File> files_;
};

}  // namespace fa4::cli
