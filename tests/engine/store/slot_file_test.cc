// Slots on disk: found again after a restart, right or absent whatever happened to the files, and
// replaced in an order that never leaves a slot whose chain is broken.
#include "engine/store/slot_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace thermocline::store {
namespace {

constexpr std::size_t kBytes = 10'000;  // three pages of 4096 each

class SlotFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "slots_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SlotFile> Open(int slots, std::size_t bytes = kBytes) {
    const std::size_t stride = (bytes + 4095) / 4096 * 4096;
    auto file =
        SlotFile::Open({.path = folder_ + "/a", .slot_bytes = bytes, .bytes_max = slots * stride});
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }
  static SlotKey Key(int name) {
    SlotKey key{};
    std::memcpy(key.data(), &name, sizeof(name));
    return key;
  }
  static std::vector<std::byte> Data(int name) { return std::vector(kBytes, std::byte(name)); }
  // Writes the slots `first`, ..., a chain that begins behind slot `parent`.
  static void WriteChain(SlotFile& file, int parent, int first, int count,
                         std::uint32_t owner = 0) {
    for (int i = 0; i < count; ++i) {
      const SlotKey before = Key(i == 0 ? parent : first + i - 1);
      const Status status = file.Write(
          Key(first + i), {.parent = before, .depth = i, .owner = owner}, Data(first + i));
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  static Status Read(SlotFile& file, int name) {
    std::vector<std::byte> out(kBytes);
    const Status status = file.Read(Key(name), out);
    EXPECT_TRUE(!status.ok() || out == Data(name)) << name;
    return status;
  }
  void Overwrite(const std::string& ending, std::size_t offset, const std::string& text) {
    std::fstream out(folder_ + "/a" + ending, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(offset));
    out << text;
  }

  std::string folder_;
};

TEST_F(SlotFileTest, AreFoundAfterARestart) {
  {
    const auto file = Open(8);
    WriteChain(*file, 0, 1, 3);
    EXPECT_TRUE(Read(*file, 2).ok());
    EXPECT_EQ(Read(*file, 9).code(), StatusCode::kNotFound);
  }
  const auto again = Open(8);
  for (int name = 1; name <= 3; ++name) EXPECT_TRUE(Read(*again, name).ok());
  EXPECT_TRUE(again->HasChild(Key(2)));
  EXPECT_FALSE(again->HasChild(Key(3)));
  EXPECT_EQ(again->counters().slots, 3);
  EXPECT_EQ(again->bytes(), 3 * 12'288);
}

TEST_F(SlotFileTest, OnlyTheirOwnerMayRead) {
  const auto file = Open(8);
  for (const char* ending : {".table", ".slots"}) {
    const auto mode = std::filesystem::status(folder_ + "/a" + ending).permissions();
    EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
}

TEST_F(SlotFileTest, ADamagedSlotIsGone) {
  WriteChain(*Open(8), 0, 1, 1);
  Overwrite(".slots", 5'000, "x");
  const auto file = Open(8);
  EXPECT_TRUE(file->Has(Key(1)));
  EXPECT_EQ(Read(*file, 1).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(file->Has(Key(1)));
  EXPECT_EQ(file->counters().damaged, 1);
  EXPECT_FALSE(Open(8)->Has(Key(1)));
  WriteChain(*file, 0, 1, 1);
  EXPECT_TRUE(Read(*file, 1).ok());
}

// Every byte of the table is cut or changed in turn: what is read is right.
TEST_F(SlotFileTest, NoChangeOfTheTableGivesAnotherAnswer) {
  {
    const auto file = Open(8);
    WriteChain(*file, 0, 1, 3);
  }
  const std::string table = folder_ + "/a.table", slots = folder_ + "/a.slots";
  std::filesystem::copy(table, table + ".kept");
  std::filesystem::copy(slots, slots + ".kept");
  const auto options = std::filesystem::copy_options::overwrite_existing;
  const std::size_t size = std::filesystem::file_size(table);
  for (std::size_t at = 0; at < size; at += at < 24 || at >= 4096 ? 3 : 509) {
    for (const bool cut : {false, true}) {
      std::filesystem::copy(table + ".kept", table, options);
      std::filesystem::copy(slots + ".kept", slots, options);
      if (cut) std::filesystem::resize_file(table, at);
      if (!cut) Overwrite(".table", at, "\x5a");
      const auto file = Open(8);
      for (int name = 1; name <= 3; ++name) (void)Read(*file, name);
      EXPECT_TRUE(file->Write(Key(7), {.parent = Key(3), .depth = 0}, Data(7)).ok());
      EXPECT_TRUE(Read(*file, 7).ok());
    }
  }
}

TEST_F(SlotFileTest, TheLeastRecentlyUsedChainGoesFromItsEnd) {
  const auto file = Open(6);
  WriteChain(*file, 0, 1, 3);
  WriteChain(*file, 0, 11, 3);
  const std::array chain = {Key(1), Key(2), Key(3)};
  file->Touch(chain);
  WriteChain(*file, 3, 4, 1);
  EXPECT_TRUE(file->Has(Key(11)) && file->Has(Key(12)) && !file->Has(Key(13)));
  WriteChain(*file, 4, 5, 2);
  EXPECT_FALSE(file->Has(Key(11)) || file->Has(Key(12)));
  for (int name = 1; name <= 6; ++name) EXPECT_TRUE(Read(*file, name).ok()) << name;
  // The chain alone fills the file: nothing of it goes for its own end.
  EXPECT_EQ(file->Write(Key(7), {.parent = Key(6), .depth = 6}, Data(7)).code(),
            StatusCode::kFailedPrecondition);
  // Nor for what would follow a missing slot.
  EXPECT_EQ(file->Write(Key(8), {.parent = Key(7), .depth = 7}, Data(8)).code(),
            StatusCode::kFailedPrecondition);
  for (int name = 1; name <= 6; ++name) EXPECT_TRUE(file->Has(Key(name))) << name;
  EXPECT_EQ(file->counters().evicted, 3);
}

TEST_F(SlotFileTest, AnOwnerWhoWritesMuchLeavesTheOthersTheirShare) {
  const auto file = Open(8);
  WriteChain(*file, 0, 1, 3, 1);
  WriteChain(*file, 0, 11, 3, 1);
  WriteChain(*file, 0, 21, 2, 2);
  const auto held = [&file](int first, int count) {
    int all = 0;
    for (int i = 0; i < count; ++i) all += file->Has(Key(first + i)) ? 1 : 0;
    return all;
  };
  for (int chain = 0; chain < 5; ++chain) WriteChain(*file, 0, 30 + 10 * chain, 3, 2);
  EXPECT_EQ(held(1, 3) + held(11, 3), 4);  // the newest of half of the file
  EXPECT_EQ(held(11, 3), 3);
  EXPECT_EQ(held(70, 3), 3);
  // And the other way around: it may have its half again, and not more.
  for (int chain = 0; chain < 5; ++chain) WriteChain(*file, 0, 130 + 10 * chain, 3, 1);
  EXPECT_EQ(held(70, 3), 3);
  EXPECT_EQ(held(170, 3), 3);
}

TEST_F(SlotFileTest, ASmallerLimitShortensTheFiles) {
  {
    const auto file = Open(8);
    WriteChain(*file, 0, 1, 8);
  }
  const auto file = Open(3);
  EXPECT_EQ(file->counters().slots, 3);
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/a.slots"), 3 * 12'288);
  for (int name = 1; name <= 3; ++name) EXPECT_TRUE(Read(*file, name).ok());
}

TEST_F(SlotFileTest, OtherSlotsReplaceTheFile) {
  WriteChain(*Open(8), 0, 1, 1);
  const auto file = Open(8, 4096);
  EXPECT_FALSE(file->Has(Key(1)));
  EXPECT_TRUE(
      file->Write(Key(2), {.parent = Key(0), .depth = 0}, std::vector(4096, std::byte{2})).ok());
}

TEST_F(SlotFileTest, ASecondProcessOnlyReads) {
  const auto writer = Open(2);
  WriteChain(*writer, 0, 1, 2);
  const auto reader = Open(2);
  EXPECT_TRUE(reader->read_only());
  EXPECT_TRUE(Read(*reader, 1).ok());
  EXPECT_EQ(reader->Write(Key(3), {.parent = Key(0), .depth = 0}, Data(3)).code(),
            StatusCode::kFailedPrecondition);
  WriteChain(*writer, 0, 21, 2);  // into the same slots
  EXPECT_EQ(Read(*reader, 1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(reader->counters().damaged, 0);
  EXPECT_TRUE(Read(*writer, 21).ok());
}

}  // namespace
}  // namespace thermocline::store
