#include "engine/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace thermocline::base {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ =
      testing::TempDir() + "thermocline file test " + std::to_string(::getpid());
  const std::string path_ = folder_ + "/a b.bin";
};

// A link where a temporary file might be written must not lead anywhere.
TEST_F(FileTest, TemporaryFilesFollowNoLink) {
  const std::string victim = folder_ + "/victim";
  std::ofstream(victim) << "mine";
  std::filesystem::create_symlink(victim, path_ + ".tmp");
  ASSERT_TRUE((*FileWriter::Create(path_))->Commit().ok());
  EXPECT_EQ(*ReadFileToString(victim), "mine");
}

TEST_F(FileTest, WritesAppearWholeOrNotAtAll) {
  {
    const auto writer = FileWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append("half").ok());
  }
  EXPECT_FALSE(PathExists(path_));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const auto writer = FileWriter::Create(path_);
  ASSERT_TRUE((*writer)->Append("whole").ok());
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(*ReadFileToString(path_), "whole");
}

TEST_F(FileTest, ShortReadsNameFileAndPlace) {
  std::ofstream(path_) << "0123456789";
  const auto file = OpenFile(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, 4);
  std::byte out[10];
  const Status status = (*file)->ReadAt(0, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("byte 4"), std::string::npos) << status.message();
}

TEST_F(FileTest, AbsentFoldersAndLargeFilesAreRefused) {
  EXPECT_EQ(OpenFile(folder_ + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenFile(folder_).status().code(), StatusCode::kInvalidArgument);
  std::ofstream(path_) << "0123456789";
  EXPECT_EQ(ReadFileToString(path_, 9).status().code(), StatusCode::kResourceExhausted);
}

// A pipe that nobody writes to must not be waited for.
TEST_F(FileTest, PipesAreNoFiles) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto file = OpenFile(path_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace thermocline::base
