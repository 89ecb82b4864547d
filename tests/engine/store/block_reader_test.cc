#include "engine/store/block_reader.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <tuple>

#include "engine/base/huge_buffer.h"
#include "engine/base/log.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::store {
namespace {

using std::chrono::milliseconds;
constexpr auto kLong = std::chrono::hours(1);  // a test that waits for this hangs
constexpr std::uint64_t kFileBytes = (3 << 20) + 1234;

std::byte ByteAt(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15) >> 56);
}

void WriteFile(const std::string& path) {
  std::string text(kFileBytes, '\0');
  for (std::uint64_t i = 0; i < kFileBytes; ++i) text[i] = static_cast<char>(ByteAt(i));
  std::ofstream(path, std::ios::binary) << text;
}

// Whether the first `count` bytes at `out` are the file's from `offset` on.
bool HoldsFile(const std::byte* out, std::uint64_t offset, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (out[i] != ByteAt(offset + i)) return false;
  }
  return true;
}

std::uint64_t BytesThere(std::uint64_t offset, std::uint64_t bytes) {
  return offset >= kFileBytes ? 0 : std::min(bytes, kFileBytes - offset);
}

// One read, to its end.
Completion ReadOne(BlockReader& reader, const BlockReader::Read& read) {
  reader.Submit(std::span(&read, 1));
  Completion completion;
  while (reader.Wait(std::span(&completion, 1), kLong) == 0) {
  }
  return completion;
}

// Whether every block of the file reads right.
bool ReadsRight(BlockReader& reader, std::span<std::byte> memory) {
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
  // Runs `body` in a child; its exit code.
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

// Random places and sizes, the queue kept full; each tag comes back once, whatever the order.
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
  // Looking without waiting finds it in the end.
  while (reader_->Wait(std::span(&completion, 1), milliseconds(0)) == 0) {
  }
  EXPECT_EQ(completion.tag, 5u);
  EXPECT_EQ(completion.result, 4096);
  EXPECT_EQ(reader_->in_flight(), 0);
  EXPECT_EQ(reader_->Wait(std::span(&completion, 1), milliseconds(0)), 0);
}

// What cannot be started is that read's completion and nobody else's.
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

// A new file under the name is not the file that is open.
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

// The memory may be freed as soon as the reader is gone.
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

// Registered memory comes in pieces of 1 GiB; a read may lie across their border.
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

TEST_F(Files, OtherThanFilesAreRefused) {
  const auto code = [](const std::string& path) {
    return OpenBlockReader(path, {}).status().code();
  };
  EXPECT_EQ(code(folder_ + "/none"), StatusCode::kNotFound);
  EXPECT_EQ(code(folder_), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("/dev/null"), StatusCode::kInvalidArgument);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(code(pipe), StatusCode::kInvalidArgument);
}

TEST_F(Files, SmallAndEmptyFiles) {
  for (const std::uint64_t bytes : {4096, 512, 511, 1, 0}) {
    std::filesystem::resize_file(path_, bytes);
    const auto reader = Open();
    ASSERT_TRUE(reader->SetMemory(memory_).ok());
    EXPECT_EQ(ReadOne(*reader, {0, memory_.data(), 8192, 0}).result,
              static_cast<std::int64_t>(bytes));
    EXPECT_TRUE(HoldsFile(memory_.data(), 0, bytes));
  }
}

TEST_F(Files, FilesInMemoryAreReadSomehow) {
  const std::string path = "/dev/shm/thermocline block reader " + std::to_string(::getpid());
  WriteFile(path);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "/dev/shm cannot be written";
  const auto reader = OpenBlockReader(path, {});
  std::filesystem::remove(path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_FALSE((*reader)->direct());
  EXPECT_TRUE(ReadsRight(**reader, memory_));
}

TEST_F(Files, TheEnvironmentMayChoose) {
  ::setenv("THERMOCLINE_FLASH_IO", "pread", 1);
  EXPECT_STREQ(Open()->method(), "pread");
  ::setenv("THERMOCLINE_FLASH_IO", "io_uring", 1);
  const auto reader = OpenBlockReader(path_, {.allow_io_uring = false});
  if (reader.ok()) {
    EXPECT_STREQ((*reader)->method(), "io_uring");
  } else {
    EXPECT_EQ(reader.status().code(), StatusCode::kFailedPrecondition);
  }
  ::setenv("THERMOCLINE_FLASH_IO", "mmap", 1);
  EXPECT_EQ(OpenBlockReader(path_, {}).status().code(), StatusCode::kInvalidArgument);
}

// From here on this process gets `error` for system call `number`.
void Deny(long number, int error) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(code), code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(77);
}

// Containers deny the set-up; a filter may as well deny only the use, or only registering.
TEST_F(Files, WithoutIoUringThreadsRead) {
  struct Case {
    long number;
    int error;
    bool denied;
  };
  for (const Case& c :
       {Case{SYS_io_uring_setup, EPERM, true}, Case{SYS_io_uring_setup, ENOSYS, true},
        Case{SYS_io_uring_enter, EPERM, true}, Case{SYS_io_uring_register, EPERM, false}}) {
    const int code = InChild([&] {
      Deny(c.number, c.error);
      const auto reader = OpenBlockReader(path_, {});
      if (!reader.ok()) return 1;
      if (c.denied && std::string((*reader)->method()) != "pread") return 2;
      return ReadsRight(**reader, memory_) ? 0 : 3;
    });
    if (code == 77) GTEST_SKIP() << "seccomp is not allowed here";
    EXPECT_EQ(code, 0) << "system call " << c.number << ", errno " << c.error;
  }
}

// An ordinary user may pin little memory; it is read into all the same.
TEST_F(Files, MemoryThatMayNotBePinned) {
  EXPECT_EQ(InChild([&] {
              const rlimit none = {0, 0};
              ::setrlimit(RLIMIT_MEMLOCK, &none);
              if (::getuid() == 0 && ::setuid(65534) != 0) return 1;
              const auto reader = OpenBlockReader(path_, {});
              if (!reader.ok()) return 2;
              return ReadsRight(**reader, memory_) ? 0 : 3;
            }),
            0);
}

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
