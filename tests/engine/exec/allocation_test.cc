// Nothing in the decode loop allocates: global new is counted while tokens are made.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/exec/ffn_governor.h"
#include "engine/exec/loaded_model.h"
#include "engine/sched/decode_loop.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

#pragma GCC diagnostic ignored \
    "-Wmismatched-new-delete"  // malloc and free are the pair, behind both

void* operator new(std::size_t size) {
  if (counting) ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace thermocline {
namespace {

TEST(DecodeLoop, AllocatesNothingPerToken) {
  exec::LoadOptions options;
  options.model = SOURCE_DIR "/config/models/tidepool.gguf";
  options.threads = 2;
  options.ffn.also = "exact,sign";
  options.ffn.audit_interval = 3;
  const auto model = exec::LoadModel(options);
  ASSERT_TRUE(model.ok());
  const auto transformer = (*model)->MakeTransformer(16, 512);
  auto cache = *(*model)->MakeCache(512);
  exec::FfnGovernor governor(**model, *transformer,
                             {.audit_interval = 3, .controller_recall = 0.97});
  exec::Sampler sampler((*model)->config.vocab_size);
  sched::DecodeLoop loop({.transformer = *transformer,
                          .cache = *cache,
                          .prefixes = nullptr,
                          .sampler = sampler,
                          .governor = governor,
                          .model = **model,
                          .tokenizer = *(*model)->tokenizer});
  const auto run = [&](int max_tokens, const char* mode) {
    TokenChannel::Update update;
    TokenChannel::ReserveBuffers(update);
    sched::Job job{.request = {.prompt = {1, 400, 500},
                               .sampling = {},
                               .max_tokens = max_tokens,
                               .stop = {"zzzz"},
                               .ffn_mode = mode,
                               .ignore_eos = true},
                   .channel = nullptr,
                   .submitted = sched::SteadyClock::now()};
    job.request.sampling.top_p = 0.9;
    job.request.sampling.repetition_penalty = 1.1;
    job.channel = std::make_shared<TokenChannel>([&] { job.channel->Take(update); });
    Usage usage;
    allocations = 0;
    counting = true;
    loop.Run(job, usage);
    counting = false;
    EXPECT_EQ(usage.completion_tokens, max_tokens);
    return allocations.load();
  };
  for (const char* mode : {"", "dense", "exact", "sign"}) {
    run(10, mode);
    const int few = run(20, mode), many = run(400, mode);
    EXPECT_EQ(few, many) << mode << ": 380 further tokens made " << many - few << " allocations";
  }
}

}  // namespace
}  // namespace thermocline
