// Injects faults into a whole program by LD_PRELOAD: failing allocations, files that end early or
// fail, a full or slow disk, interrupted calls, a clock that jumps, threads that start late. A file
// that the test maps, too (faults.py), controls them, so that faults start and end while the
// program runs.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

using Cell = std::atomic<std::int64_t>;

// The layout of faults.py. Countdowns to a failure stop at -1, which means never.
struct Table {
  Cell allocation_fails_in;  // calls of operator new
  Cell allocations;          // calls so far
  Cell read_fails_in;        // reads of files
  Cell read_errno;
  Cell reads;
  Cell read_bytes_max;    // per read; 0 = no limit
  Cell interrupt_every;   // EINTR for one of so many reads and writes of files; 0 = never
  Cell write_bytes_left;  // then write_errno; -1 = no limit
  Cell write_errno;
  Cell read_delay_us;
  Cell clock_offset_ns;  // of the wall clock
  Cell map_fails_in;     // calls of mmap of 1 MiB or more
  Cell maps;
  Cell wake_delay_us;  // maximum, for a thread that waited
  Cell threads_left;   // that can be created; -1 = no limit
};

Table* table() {
  static Table* const mapped = [] {
    const char* const path = std::getenv("FAULTS_FILE");
    if (path == nullptr) return static_cast<Table*>(nullptr);
    const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR));
    const long at =
        syscall(SYS_mmap, nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (at < 0 && at > -4096) std::abort();
    return reinterpret_cast<Table*>(at);
  }();
  return mapped;
}

// True if this call fails.
bool Fails(Cell& in) {
  for (std::int64_t left = in; left >= 0;)
    if (in.compare_exchange_weak(left, left - 1)) return left == 0;
  return false;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool IsRegular(int file) {
  struct stat status;
  return syscall(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH) == 0 && S_ISREG(status.st_mode);
}

bool Interrupts() {
  static std::atomic<std::int64_t> calls{0};
  const std::int64_t every = table()->interrupt_every;
  return every > 0 && ++calls % every == 0;
}

// The bytes that this read may return, or -1 with errno.
ssize_t ReadMax(int file, std::size_t bytes) {
  if (table() == nullptr || !IsRegular(file)) return static_cast<ssize_t>(bytes);
  ++table()->reads;
  if (const auto delay = table()->read_delay_us.load(); delay > 0) {
    const timespec time{delay / 1'000'000, delay % 1'000'000 * 1000};
    syscall(SYS_nanosleep, &time, nullptr);
  }
  const bool fails = Fails(table()->read_fails_in);
  if (fails || Interrupts()) {
    errno = fails ? static_cast<int>(table()->read_errno) : EINTR;
    return -1;
  }
  const std::int64_t most = table()->read_bytes_max;
  return most > 0 && static_cast<std::size_t>(most) < bytes ? most : static_cast<ssize_t>(bytes);
}

ssize_t WriteMax(int file, std::size_t bytes) {
  if (table() == nullptr || !IsRegular(file)) return static_cast<ssize_t>(bytes);
  if (Interrupts()) {
    errno = EINTR;
    return -1;
  }
  std::int64_t left = table()->write_bytes_left;
  if (left < 0) return static_cast<ssize_t>(bytes);
  const auto written = std::min(left, static_cast<std::int64_t>(bytes));
  table()->write_bytes_left = left - written;
  if (written > 0 || bytes == 0) return written;
  errno = static_cast<int>(table()->write_errno);
  return -1;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (table() != nullptr) {
    ++table()->allocations;
    if (Fails(table()->allocation_fails_in)) return nullptr;
  }
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment = 1) {
  void* const memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return AllocateOrThrow(bytes); }
void* operator new[](std::size_t bytes) { return AllocateOrThrow(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" {

ssize_t read(int file, void* to, std::size_t bytes) {
  static auto* const next = Next<ssize_t(int, void*, std::size_t)>("read");
  const ssize_t most = ReadMax(file, bytes);
  return most < 0 ? most : next(file, to, static_cast<std::size_t>(most));
}

ssize_t pread64(int file, void* to, std::size_t bytes, off64_t at) {
  static auto* const next = Next<ssize_t(int, void*, std::size_t, off64_t)>("pread64");
  const ssize_t most = ReadMax(file, bytes);
  return most < 0 ? most : next(file, to, static_cast<std::size_t>(most), at);
}
ssize_t pread(int file, void* to, std::size_t bytes, off_t at) {
  return pread64(file, to, bytes, at);
}

ssize_t write(int file, const void* from, std::size_t bytes) {
  static auto* const next = Next<ssize_t(int, const void*, std::size_t)>("write");
  const ssize_t most = WriteMax(file, bytes);
  return most < 0 ? most : next(file, from, static_cast<std::size_t>(most));
}

ssize_t pwrite64(int file, const void* from, std::size_t bytes, off64_t at) {
  static auto* const next = Next<ssize_t(int, const void*, std::size_t, off64_t)>("pwrite64");
  const ssize_t most = WriteMax(file, bytes);
  return most < 0 ? most : next(file, from, static_cast<std::size_t>(most), at);
}
ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t at) {
  return pwrite64(file, from, bytes, at);
}

// The C library writes its own buffers without calling this write.
std::size_t fwrite(const void* from, std::size_t size, std::size_t count, FILE* file) {
  static auto* const next =
      Next<std::size_t(const void*, std::size_t, std::size_t, FILE*)>("fwrite");
  const std::size_t bytes = size * count;
  const ssize_t most = file == stderr ? static_cast<ssize_t>(bytes) : WriteMax(fileno(file), bytes);
  if (most < 0 && errno == EINTR) return next(from, size, count, file);
  if (most < 0 || static_cast<std::size_t>(most) < bytes) {
    errno = static_cast<int>(table()->write_errno);
    return 0;
  }
  return next(from, size, count, file);
}

void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  static auto* const next = Next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  if (bytes >= kLarge && table() != nullptr) {
    ++table()->maps;
    if (Fails(table()->map_fails_in)) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
  }
  return next(at, bytes, protection, flags, file, offset);
}
void* mmap64(void* at, std::size_t bytes, int protection, int flags, int file, off64_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  static auto* const next =
      Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (table() != nullptr) {
    for (std::int64_t left = table()->threads_left; left >= 0;) {
      if (left == 0) return EAGAIN;
      if (table()->threads_left.compare_exchange_weak(left, left - 1)) break;
    }
  }
  return next(thread, attributes, run, argument);
}

int clock_gettime(clockid_t clock, timespec* time) {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result != 0 || clock != CLOCK_REALTIME || table() == nullptr) return result;
  const std::int64_t ns = time->tv_nsec + table()->clock_offset_ns;
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t seconds = ns / kSecond, rest = ns % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  time->tv_sec += seconds;
  time->tv_nsec = rest;
  return 0;
}

// Atomic waits are system calls of the C++ library.
long syscall(long number, ...) noexcept {
  static auto* const next = Next<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  const long result = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  constexpr long kWaitOperations = 0x7f;  // without flags: FUTEX_WAIT is 0, FUTEX_WAIT_BITSET 9
  if (number != SYS_futex || table() == nullptr) return result;
  const long operation = a[1] & kWaitOperations;
  const std::int64_t most = table()->wake_delay_us;
  if (most <= 0 || (operation != 0 && operation != 9)) return result;
  const int error = errno;
  static std::atomic<std::uint64_t> seed{1};
  const std::uint64_t random = seed.fetch_add(0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 >> 33;
  const timespec time{0, static_cast<long>(random % static_cast<std::uint64_t>(most)) * 1000};
  next(SYS_nanosleep, &time, nullptr);
  errno = error;
  return result;
}

}  // extern "C"
