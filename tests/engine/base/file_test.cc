#include "engine/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

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

// A link at the path of a temporary file must not be followed.
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

// The number of the file's pages in the page cache.
std::size_t CachedPages(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  const std::size_t bytes = std::filesystem::file_size(path);
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  EXPECT_NE(map, MAP_FAILED);
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(::mincore(map, bytes, pages.data()), 0);
  ::munmap(map, bytes);
  ::close(fd);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

std::string NoiseOf(std::size_t bytes) {
  std::mt19937 random(7);
  std::string noise(bytes, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

// Writes the file to disk and drops it from the page cache.
void WriteCold(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  const int fd = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ::fsync(fd);
  EXPECT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(fd);
}

bool InMemory(const std::string& folder) {
  struct statfs info {};
  return ::statfs(folder.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

TEST_F(FileTest, DirectReadsHaveTheBytesAndLeaveThePageCache) {
  if (InMemory(folder_)) GTEST_SKIP() << folder_ << " is a tmpfs, which is the page cache";
  const std::string text = NoiseOf((3 << 20) + 777);
  for (const bool direct : {true, false}) {
    WriteCold(path_, text);
    ASSERT_EQ(CachedPages(path_), 0U);
    auto file = *OpenFile(path_);
    if (direct) {
      const std::string why = file->ReadDirectly();
      if (!why.empty()) std::printf("  not around the page cache: %s\n", why.c_str());
    }
    for (const auto& [offset, bytes] : {std::pair<std::size_t, std::size_t>{0, 1},
                                        {511, 2},
                                        {4096, 8192},
                                        {1000, 2 << 20},
                                        {text.size() - 1, 1},
                                        {text.size() - 5000, 5000},
                                        {0, text.size()},
                                        {7, 0}}) {
      std::string got(bytes, 'x');
      const Status read = file->ReadAt(offset, std::as_writable_bytes(std::span(got)));
      ASSERT_TRUE(read.ok()) << read.message();
      EXPECT_EQ(got, text.substr(offset, bytes)) << offset << " " << bytes;
    }
    if (direct)
      EXPECT_EQ(CachedPages(path_), 0U);
    else
      EXPECT_GT(CachedPages(path_), 0U);  // otherwise this tests no caching
  }
}

TEST_F(FileTest, DirectReadsBehindTheEndSayWhereItIs) {
  const std::string text = NoiseOf(20000);
  std::ofstream(path_) << text;
  auto file = *OpenFile(path_);
  (void)file->ReadDirectly();
  std::filesystem::resize_file(path_, 9000);
  std::string got(20000, 'x');
  const Status status = file->ReadAt(0, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("ends at byte 9000, 11000 bytes short"), std::string::npos)
      << status.message();
}

// Reads the open file, not a new one with its name.
TEST_F(FileTest, DirectReadsAreOfTheFileThatWasOpened) {
  const std::string text = NoiseOf(5000);
  std::ofstream(path_) << text;
  auto file = *OpenFile(path_);
  std::filesystem::remove(path_);
  std::ofstream(path_) << "another";
  (void)file->ReadDirectly();
  std::string got(text.size(), 'x');
  ASSERT_TRUE(file->ReadAt(0, std::as_writable_bytes(std::span(got))).ok());
  EXPECT_EQ(got, text);
}

TEST_F(FileTest, AFileInMemoryIsReadAsBeforeAndSaysWhy) {
  const std::string path = "/dev/shm/thermocline_file_test_" + std::to_string(::getpid());
  if (!InMemory("/dev/shm")) GTEST_SKIP() << "/dev/shm is no tmpfs";
  std::ofstream(path) << "0123456789";
  auto file = *OpenFile(path);
  EXPECT_NE(file->ReadDirectly().find("memory"), std::string::npos);
  std::string got(4, 'x');
  EXPECT_TRUE(file->ReadAt(3, std::as_writable_bytes(std::span(got))).ok());
  EXPECT_EQ(got, "3456");
  std::filesystem::remove(path);
}

// A pipe without a writer must not block.
TEST_F(FileTest, PipesAreNoFiles) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto file = OpenFile(path_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace thermocline::base
