// A file with known bytes, to be read by a BlockReader.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/base/huge_buffer.h"
#include "engine/base/log.h"
#include "engine/store/block_reader.h"

namespace thermocline::store {

inline constexpr auto kLong = std::chrono::hours(1);  // a test that waits for this hangs
inline constexpr std::uint64_t kFileBytes = (3 << 20) + 1234;

inline std::byte ByteAt(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15) >> 56);
}

inline void WriteFile(const std::string& path) {
  std::string text(kFileBytes, '\0');
  for (std::uint64_t i = 0; i < kFileBytes; ++i) text[i] = static_cast<char>(ByteAt(i));
  std::ofstream(path, std::ios::binary) << text;
}

// True if the first `count` bytes at `out` are the file's from `offset` on.
inline bool HoldsFile(const std::byte* out, std::uint64_t offset, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (out[i] != ByteAt(offset + i)) return false;
  }
  return true;
}

inline std::uint64_t BytesThere(std::uint64_t offset, std::uint64_t bytes) {
  return offset >= kFileBytes ? 0 : std::min(bytes, kFileBytes - offset);
}

// Runs one read to its end.
inline Completion ReadOne(BlockReader& reader, const BlockReader::Read& read) {
  reader.Submit(std::span(&read, 1));
  Completion completion;
  while (reader.Wait(std::span(&completion, 1), kLong) == 0) {
  }
  return completion;
}

// True if every block of the file is read correctly.
inline bool ReadsRight(BlockReader& reader, std::span<std::byte> memory) {
  if (!reader.SetMemory(memory).ok()) return false;
  constexpr std::uint32_t kBytes = 1 << 16;
  for (std::uint64_t offset = 0; offset < kFileBytes; offset += kBytes) {
    const Completion c = ReadOne(reader, {offset, memory.data(), kBytes, offset});
    const std::uint64_t there = BytesThere(offset, kBytes);
    if (c.tag != offset || c.result != static_cast<std::int64_t>(there)) return false;
    if (!HoldsFile(memory.data(), offset, there)) return false;
  }
  return true;
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kWarning, false);
    ::unsetenv("THERMOCLINE_FLASH_IO");
    std::filesystem::create_directories(folder_);
    WriteFile(path_);
    buffer_ = *base::HugeBuffer::Allocate(8 << 20);
    memory_ = {buffer_.data(), buffer_.size()};
  }
  void TearDown() override {
    ::unsetenv("THERMOCLINE_FLASH_IO");
    std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<BlockReader> Open(const ReaderOptions& options = {}) {
    auto reader = OpenBlockReader(path_, options);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    return *std::move(reader);
  }
  // Runs `body` in a child process; returns its exit code.
  template <typename Body>
  static int InChild(const Body& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + state;
  }

  const std::string folder_ =
      testing::TempDir() + "thermocline block reader " + std::to_string(::getpid());
  const std::string path_ = folder_ + "/blocks.bin";
  base::HugeBuffer buffer_;
  std::span<std::byte> memory_;
};

}  // namespace thermocline::store
