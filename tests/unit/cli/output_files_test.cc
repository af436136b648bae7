#include "io/output_files.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "failure.h"
#include "io/replace_file.h"
#include "scratch_folder.h"

namespace fa4::cli {
namespace {

using Outputs = ScratchFolder;

TEST_F(Outputs, NothingIsThereBeforeItIsPublished) {
  const float values[] = {1, 2};
  {
    OutputFiles outputs;
    outputs.add_tensor("--out", path("a.npy"));
    outputs.add_tensor("--lse", path("b.safetensors:lse"));
    outputs.set_tensor("--out", FileType::kF32, {2}, values);
    outputs.set_tensor("--lse", FileType::kF32, {2}, values);
    EXPECT_FALSE(std::filesystem::exists(path("a.npy")));
    outputs.write();
    EXPECT_FALSE(std::filesystem::exists(path("a.npy")));
    outputs.publish();
    outputs.keep();
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(read_tensor(path("b.safetensors:lse")).elements(), 2);
}

TEST_F(Outputs, WhatIsNotPublishedIsNotLeft) {
  write("a.npy", "old");
  {
    OutputFiles outputs;
    outputs.add_tensor("--out", path("a.npy"));
    EXPECT_EQ(files(), 2u);
    const float values[] = {1, 2};
    outputs.set_tensor("--out", FileType::kF32, {2}, values);
    outputs.write();
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read("a.npy"), "old");
}

TEST_F(Outputs, WhatIsNotKeptIsTakenBack) {
  write("old.txt", "old");
  {
    OutputFiles outputs;
    for (const char* name : {"old.txt", "new.txt"}) outputs.add_text(name, path(name));
    for (const char* name : {"old.txt", "new.txt"}) outputs.set_text(name, "written");
    outputs.write();
    outputs.publish();
    EXPECT_EQ(read("old.txt") + read("new.txt"), "writtenwritten");
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read("old.txt"), "old");
}

// What may not be replaced is known when its turn comes; those before it are in their places then.
TEST_F(Outputs, AFileThatCannotBeReplacedLeavesAllAsTheyWere) {
  write("old.txt", "old");
  {
    OutputFiles outputs;
    for (const char* name : {"old.txt", "new.txt", "taken.txt"}) {
      outputs.add_text(name, path(name));
      outputs.set_text(name, "written");
    }
    outputs.write();
    std::filesystem::create_directory(path("taken.txt"));
    write("taken.txt/inside", "");
    EXPECT_THROW(outputs.publish(), Failure);
  }
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(read("old.txt"), "old");
  EXPECT_TRUE(std::filesystem::exists(path("taken.txt/inside")));
}

TEST_F(Outputs, NamesThatAreTooLongAreKnownBeforeTheWork) {
  OutputFiles outputs;
  EXPECT_THROW(outputs.add_text("--csv", path(std::string(256, 'x'))), Failure);
  outputs.add_text("--plot", path(std::string(255, 'x')));
}

TEST_F(Outputs, FilesAreReplacedWhereNoneCanBeExchanged) {
  const std::string target = path("target"), file = path("file");
  std::string old;
  write("file", "first");
  EXPECT_EQ(replace_without_exchange(file, target, &old), 0);
  EXPECT_EQ(old, "");
  write("file", "second");
  EXPECT_EQ(replace_without_exchange(file, target, &old), 0);
  EXPECT_EQ(read("target"), "second");
  std::filesystem::rename(old, target);  // as it is taken back
  EXPECT_EQ(read("target"), "first");
  EXPECT_EQ(replace_without_exchange(file, target, &old), ENOENT);
  EXPECT_EQ(read("target"), "first");
  EXPECT_EQ(replace_without_exchange(target, path("."), &old), EISDIR);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Outputs, SeveralAtATimeMayWriteIntoOneFolder) {
  OutputFiles first, second;
  first.add_text("--keep", path("a.cubin"));
  second.add_text("--keep", path("b.cubin"));
  first.set_text("--keep", "a");
  second.set_text("--keep", "b");
  for (OutputFiles* outputs : {&first, &second}) outputs->write();
  for (OutputFiles* outputs : {&first, &second}) outputs->publish();
  for (OutputFiles* outputs : {&first, &second}) outputs->keep();
  EXPECT_EQ(read("a.cubin") + read("b.cubin"), "ab");
  EXPECT_EQ(files(), 2u);
}

TEST_F(Outputs, OneSafetensorsIsOneFile) {
  const float values[] = {1, 2};
  OutputFiles outputs;
  outputs.add_tensor("--out", path("a.safetensors:x"));
  outputs.add_tensor("--lse", path("a.safetensors:y"));
  outputs.set_tensor("--out", FileType::kF32, {1}, values);
  outputs.set_tensor("--lse", FileType::kF32, {2}, values);
  outputs.write();
  outputs.publish();
  outputs.keep();
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read_tensor(path("a.safetensors:x")).elements(), 1);
  EXPECT_EQ(read_tensor(path("a.safetensors:y")).elements(), 2);
}

TEST_F(Outputs, ConflictsAreRefused) {
  write("in.npy", "input");
  OutputFiles outputs;
  outputs.add_input("--q", path("in.npy"));
  EXPECT_THROW(outputs.add_tensor("--out", path("in.npy")), Failure);
  outputs.add_tensor("--out", path("a.npy"));
  EXPECT_THROW(outputs.add_tensor("--lse", path("a.npy")), Failure);
  EXPECT_THROW(outputs.add_tensor("--lse", path("c.safetensors")), Failure);
  EXPECT_EQ(read("in.npy"), "input");
}

}  // namespace
}  // namespace fa4::cli
