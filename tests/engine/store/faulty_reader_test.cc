#include "tests/engine/store/faulty_reader.h"

#include <array>

#include "tests/engine/store/block_file.h"

namespace thermocline::store {
namespace {

using std::chrono::milliseconds;

class Faults : public Files {
 protected:
  void SetUp() override {
    Files::SetUp();
    reader_ = std::make_unique<FaultyReader>(Open());
    ASSERT_TRUE(reader_->SetMemory(memory_).ok());
  }
  Completion Read(std::uint64_t offset) {
    return ReadOne(*reader_, {offset, memory_.data(), 4096, 1});
  }
  std::unique_ptr<FaultyReader> reader_;
};

TEST_F(Faults, HitWhatTheyAreToldTo) {
  reader_->Inject({.kind = Fault::Kind::kError, .begin = 4096, .end = 8192, .count = 1});
  EXPECT_EQ(Read(0).result, 4096);
  EXPECT_EQ(Read(4096).result, -EIO);
  EXPECT_EQ(Read(4096).result, 4096);
  reader_->Inject({.kind = Fault::Kind::kError, .error = ENXIO});
  EXPECT_EQ(Read(0).result, -ENXIO);
  EXPECT_EQ(Read(8192).result, -ENXIO);
  reader_->Clear();
  EXPECT_EQ(Read(8192).result, 4096);
  reader_->Inject({.kind = Fault::Kind::kShort, .count = 1, .bytes = 100});
  EXPECT_EQ(Read(0).result, 100);
  EXPECT_TRUE(HoldsFile(memory_.data(), 0, 100));
  EXPECT_EQ(memory_[100], std::byte{0xEE});
  reader_->Inject({.kind = Fault::Kind::kFlip, .begin = 4100, .end = 4101, .count = 1});
  EXPECT_EQ(Read(4096).result, 4096);
  EXPECT_TRUE(HoldsFile(memory_.data(), 4096, 4));
  EXPECT_EQ(memory_[4], ByteAt(4100) ^ std::byte{1});
  EXPECT_TRUE(HoldsFile(memory_.data() + 5, 4101, 4096 - 5));
  EXPECT_EQ(reader_->in_flight(), 0);
}

TEST_F(Faults, DelayedReadsWaitForTheirRelease) {
  reader_->Inject({.kind = Fault::Kind::kDelay, .end = 4096, .count = 1});
  const std::array<BlockReader::Read, 2> reads = {
      {{0, memory_.data(), 4096, 10}, {4096, memory_.data() + 4096, 4096, 11}}};
  reader_->Submit(reads);
  std::array<Completion, 2> out;
  ASSERT_EQ(reader_->Wait(out, kLong), 1);
  EXPECT_EQ(out[0].tag, 11u);
  EXPECT_EQ(reader_->Wait(out, milliseconds(5000)), 0);
  EXPECT_EQ(reader_->time_given(), milliseconds(5000));
  EXPECT_EQ(reader_->in_flight(), 1);
  reader_->Release();
  ASSERT_EQ(reader_->Wait(out, kLong), 1);
  EXPECT_EQ(out[0].tag, 10u);
  EXPECT_EQ(out[0].result, 4096);
  EXPECT_TRUE(HoldsFile(memory_.data(), 0, 4096));
}

}  // namespace
}  // namespace thermocline::store
