// Files that a BlockReader can open, and its ways of reading when the system denies it resources.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "tests/engine/store/block_file.h"

namespace thermocline::store {
namespace {

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

// From now on this process gets `error` for system call `number`.
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

// Containers deny the setup; a filter may also deny only the use, or only registering.
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

// An ordinary user may pin little memory; unpinned memory works, too.
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

}  // namespace
}  // namespace thermocline::store
