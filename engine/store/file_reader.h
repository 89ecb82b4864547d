// The common part of readers of a real file. Private to this folder.
#pragma once

#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/direct_file.h"
#include "engine/base/index.h"
#include "engine/store/block_reader.h"

namespace thermocline::store {

class FileReader : public BlockReader {
 public:
  FileReader(base::DirectFile file, int depth) : file_(std::move(file)), depth_(depth) {}

  const std::string& path() const final { return file_.path(); }
  std::uint64_t size() const final { return file_.size(); }
  std::size_t alignment() const final { return file_.alignment(); }
  int depth() const final { return depth_; }
  bool direct() const final { return file_.direct(); }

  Status SetMemory(std::span<std::byte> memory) override {
    CHECK_EQ(in_flight_, 0);
    if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignment() != 0)
      return base::InvalidArgument(path(), ": memory to read into must be aligned to ", alignment(),
                                   " bytes");
    memory_ = memory;
    return OkStatus();
  }

 protected:
  // Counts and checks reads that are about to start.
  void Admit(std::span<const Read> reads) {
    in_flight_ += base::IntSize(reads);
    CHECK_LE(in_flight_, depth_);
    for (const Read& read : reads) {
      CHECK(read.out >= memory_.data());
      CHECK_LE(static_cast<std::size_t>(read.out - memory_.data()) + read.bytes, memory_.size());
    }
  }

  const base::DirectFile file_;
  const int depth_;
  std::span<std::byte> memory_;
};

// Takes ownership of `file` unless it fails: Unavailable with the reason why io_uring cannot be
// used.
Result<std::unique_ptr<BlockReader>> MakeUringReader(base::DirectFile& file, int depth);
std::unique_ptr<BlockReader> MakePreadReader(base::DirectFile file, int depth);

}  // namespace thermocline::store
