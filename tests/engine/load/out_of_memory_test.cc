// Each allocation of a loading engine fails once: the result is a Status, and the next load works.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/base/log.h"
#include "engine/engine.h"

namespace {
std::atomic<long> allocations_left{-1};  // of all threads, until one fails; below 0 none does
}  // namespace

// Not inline, since compilers would see malloc and delete, or new and free, as a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  const bool fails = allocations_left.load() >= 0 && allocations_left.fetch_sub(1) == 0;
  void* memory = fails ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace thermocline {
namespace {

Result<std::unique_ptr<Engine>> LoadShort(const EngineConfig& config, long allocations) {
  allocations_left = allocations;
  auto engine = Engine::Load(config);
  return engine;
}

TEST(EngineOutOfMemoryTest, LoadingIsRefused) {
  base::ConfigureLog(base::LogLevel::kOff, false);
  EngineConfig config;
  config.model.path = SOURCE_DIR "/tests/golden/models/stories260K/stories260K.bin";
  config.model.threads = 2;
  int refused = 0;
  bool loaded = false;
  for (long n = 0; !loaded; ++n) {
    const auto engine = LoadShort(config, n);
    loaded = allocations_left >= 0;  // loading needed fewer
    allocations_left = -1;
    if (engine.ok()) continue;  // the allocation was optional
    ++refused;
    ASSERT_EQ(engine.status().code(), StatusCode::kUnavailable) << n << engine.status().message();
    ASSERT_NE(engine.status().message().find("memory"), std::string::npos) << n;
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace thermocline
