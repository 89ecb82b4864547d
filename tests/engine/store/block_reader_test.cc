#include "engine/store/block_reader.h"

#include <algorithm>
#include <array>
#include <random>
#include <thread>
#include <tuple>

#include "tests/engine/store/block_file.h"

namespace thermocline::store {
namespace {

using std::chrono::milliseconds;

// Every way to read: (io_uring, around the page cache, depth).
class Readers : public Files, public testing::WithParamInterface<std::tuple<bool, bool, int>> {
 protected:
  void SetUp() override {
    Files::SetUp();
    const auto [uring, direct, depth] = GetParam();
    reader_ = Open({.depth = depth, .allow_io_uring = uring, .allow_direct = direct});
    if (uring && std::string(reader_->method()) != "io_uring")
      GTEST_SKIP() << "io_uring is not allowed here";
    if (direct && !reader_->direct()) GTEST_SKIP() << folder_ << ": no direct reads here";
    EXPECT_STREQ(reader_->method(), uring ? "io_uring" : "pread");
    EXPECT_EQ(reader_->direct(), direct);
    EXPECT_EQ(reader_->depth(), depth);
    EXPECT_EQ(reader_->size(), kFileBytes);
    ASSERT_TRUE(reader_->SetMemory(memory_).ok());
  }
  std::unique_ptr<BlockReader> reader_;
};

std::string WayName(const testing::TestParamInfo<Readers::ParamType>& way) {
  const auto [uring, direct, depth] = way.param;
  return StrCat(uring ? "uring_" : "pread_", direct ? "direct_" : "cached_", depth);
}
INSTANTIATE_TEST_SUITE_P(Ways, Readers,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(1, 3, 64, 100)),
                         WayName);

// Random positions and sizes with a full queue; each tag is returned once, in any order.
TEST_P(Readers, ReadWhatWasWritten) {
  constexpr int kReads = 400;
  const std::size_t unit = reader_->alignment(), slot_bytes = memory_.size() / 100 / unit * unit;
  std::mt19937 random(1);
  std::vector<BlockReader::Read> reads(kReads), batch;
  std::vector<int> ended(kReads);
  std::vector<std::size_t> free_slots;
  for (int i = 0; i < reader_->depth(); ++i) free_slots.push_back(static_cast<std::size_t>(i));
  std::array<Completion, 7> completions;
  for (std::size_t next = 0, done = 0; done < kReads;) {
    batch.clear();
    for (; next < kReads && !free_slots.empty(); ++next) {
      const std::size_t blocks = slot_bytes / unit, count = 1 + random() % blocks;
      reads[next] = {random() % (kFileBytes / unit + 2) * unit,
                     memory_.data() + free_slots.back() * slot_bytes,
                     static_cast<std::uint32_t>(count * unit), next};
      free_slots.pop_back();
      batch.push_back(reads[next]);
    }
    reader_->Submit(batch);
    const int n = reader_->Wait(completions, kLong);
    ASSERT_GT(n, 0);
    for (const Completion& c : std::span(completions).first(static_cast<std::size_t>(n))) {
      ASSERT_LT(c.tag, next);
      const BlockReader::Read& read = reads[c.tag];
      EXPECT_EQ(++ended[c.tag], 1);
      const std::uint64_t there = BytesThere(read.offset, read.bytes);
      ASSERT_EQ(c.result, static_cast<std::int64_t>(there)) << read.offset << " " << read.bytes;
      ASSERT_TRUE(HoldsFile(read.out, read.offset, there)) << read.offset << " " << read.bytes;
      EXPECT_TRUE(ReadStatus(*reader_, read, c).ok());
      free_slots.push_back(static_cast<std::size_t>(read.out - memory_.data()) / slot_bytes);
      ++done;
    }
  }
  EXPECT_EQ(reader_->in_flight(), 0);
}

TEST_P(Readers, WaitForNothingWhenThereIsNothing) {
  Completion completion;
  EXPECT_EQ(reader_->Wait(std::span(&completion, 1), kLong), 0);
  const BlockReader::Read read = {0, memory_.data(), 4096, 5};
  reader_->Submit(std::span(&read, 1));
  EXPECT_EQ(reader_->Wait({}, kLong), 0);
  EXPECT_EQ(reader_->in_flight(), 1);
  // Polling without waiting finds it eventually.
  while (reader_->Wait(std::span(&completion, 1), milliseconds(0)) == 0) {
  }
  EXPECT_EQ(completion.tag, 5u);
  EXPECT_EQ(completion.result, 4096);
  EXPECT_EQ(reader_->in_flight(), 0);
  EXPECT_EQ(reader_->Wait(std::span(&completion, 1), milliseconds(0)), 0);
}

// A read that cannot start fails only its own completion.
TEST_P(Readers, ErrorsAreTheReadsOwn) {
  if (reader_->direct()) {
    const Completion odd = ReadOne(*reader_, {1, memory_.data(), 4096, 9});
    EXPECT_EQ(odd.result, -EINVAL);
    EXPECT_EQ(odd.tag, 9u);
  }
  const std::uint64_t negative = std::uint64_t{1} << 63;
  const BlockReader::Read bad = {negative, memory_.data(), 4096, 1};
  const Completion c = ReadOne(*reader_, bad);
  EXPECT_LT(c.result, 0);
  const Status status = ReadStatus(*reader_, bad, c);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
  if (reader_->depth() < 3) return;
  const std::array<BlockReader::Read, 3> reads = {
      {{0, memory_.data(), 4096, 0}, bad, {8192, memory_.data() + 8192, 4096, 2}}};
  reader_->Submit(reads);
  for (int ended = 0; ended < 3;) {
    std::array<Completion, 3> out;
    const int n = reader_->Wait(out, kLong);
    for (int i = 0; i < n; ++i) {
      const Completion& one = out[static_cast<std::size_t>(i)];
      EXPECT_EQ(one.result, one.tag == 1 ? c.result : 4096) << one.tag;
    }
    ended += n;
  }
  EXPECT_TRUE(HoldsFile(memory_.data() + 8192, 8192, 4096));
}

TEST_P(Readers, TheEndOfTheFileIsAShortRead) {
  const std::uint64_t last = kFileBytes / 4096 * 4096;
  const BlockReader::Read read = {last, memory_.data(), 8192, 0};
  const Completion c = ReadOne(*reader_, read);
  EXPECT_EQ(c.result, static_cast<std::int64_t>(kFileBytes - last));
  EXPECT_TRUE(ReadStatus(*reader_, read, c).ok());
  EXPECT_EQ(ReadOne(*reader_, {last + 8192, memory_.data(), 4096, 0}).result, 0);
}

TEST_P(Readers, TruncationIsTold) {
  std::filesystem::resize_file(path_, 10000);
  const BlockReader::Read read = {8192, memory_.data(), 4096, 0},
                          beyond = {1 << 20, memory_.data(), 4096, 0};
  const Completion part = ReadOne(*reader_, read), none = ReadOne(*reader_, beyond);
  EXPECT_EQ(part.result, 10000 - 8192);
  EXPECT_EQ(none.result, 0);
  EXPECT_EQ(ReadStatus(*reader_, read, part).code(), StatusCode::kDataLoss);
  EXPECT_EQ(ReadStatus(*reader_, beyond, none).code(), StatusCode::kDataLoss);
  EXPECT_EQ(reader_->size(), kFileBytes);
}

// A new file with the same name is not the open file.
TEST_P(Readers, ReplacementIsNotSeen) {
  std::ofstream(path_ + ".new") << "other";
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_TRUE(ReadsRight(*reader_, memory_));
}

TEST_P(Readers, MemoryCanBeChanged) {
  EXPECT_EQ(reader_->SetMemory(memory_.subspan(1)).code(), StatusCode::kInvalidArgument);
  auto other = *base::HugeBuffer::Allocate(1 << 20);
  EXPECT_TRUE(ReadsRight(*reader_, {other.data(), other.size()}));
  ASSERT_TRUE(reader_->SetMemory({}).ok());
  EXPECT_TRUE(ReadsRight(*reader_, memory_));
}

// A model is loaded by one thread and decodes on another.
TEST_P(Readers, AnotherThreadMayGoOn) {
  const BlockReader::Read read = {4096, memory_.data(), 4096, 3};
  std::thread([&] { reader_->Submit(std::span(&read, 1)); }).join();
  Completion completion;
  while (reader_->Wait(std::span(&completion, 1), kLong) == 0) {
  }
  EXPECT_EQ(completion.result, 4096);
  EXPECT_TRUE(HoldsFile(memory_.data(), 4096, 4096));
  std::thread([&] { EXPECT_TRUE(ReadsRight(*reader_, memory_)); }).join();
}

// The memory may be freed once the reader is destroyed.
TEST_P(Readers, EndWithReadsInFlight) {
  std::vector<BlockReader::Read> reads;
  for (int i = 0; i < reader_->depth(); ++i)
    reads.push_back({0, memory_.data() + i * 65536, 65536, 0});
  reader_->Submit(reads);
  reader_.reset();
  std::fill(memory_.begin(), memory_.end(), std::byte{7});
  EXPECT_TRUE(
      std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == std::byte{7}; }));
}

// Registered memory is in pieces of 1 GiB; a read may cross their border.
TEST_F(Files, MemoryAboveOneGiB) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  auto large = base::HugeBuffer::Allocate(kGiB + (4 << 20));
  if (!large.ok()) GTEST_SKIP() << large.status().message();
  const auto reader = Open();
  ASSERT_TRUE(reader->SetMemory({large->data(), large->size()}).ok());
  for (const std::size_t at : {kGiB - 65536, kGiB - 4096, kGiB, kGiB + 8192}) {
    EXPECT_EQ(ReadOne(*reader, {4096, large->data() + at, 65536, 0}).result, 65536);
    EXPECT_TRUE(HoldsFile(large->data() + at, 4096, 65536)) << at;
  }
}

}  // namespace
}  // namespace thermocline::store
