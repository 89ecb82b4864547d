// Nothing in the decode loop allocates: global new is counted while tokens are made.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "engine/base/log.h"
#include "engine/exec/ffn_governor.h"
#include "engine/exec/loaded_model.h"
#include "engine/predictor/identity.h"
#include "engine/sched/decode_loop.h"
#include "engine/spec/set_up.h"
#include "tests/engine/exec/flash_models.h"

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

// Counts what further tokens of a request allocate in one mode.
void ExpectNoAllocations(const FfnOptions& ffn, const std::string& request_mode = "",
                         const exec::MemoryOptions& memory = {}, const SpecOptions& spec = {}) {
  exec::LoadOptions options;
  options.memory = memory;
  options.model = SOURCE_DIR "/config/models/tidepool.gguf";
  options.threads = 2;
  options.ffn = ffn;
  const auto model = exec::LoadModel(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto transformer = (*model)->MakeTransformer(16, 512, 16);
  auto cache = *(*model)->MakeCache(512);
  exec::Sampler sampler((*model)->config.vocab_size, 1024);
  exec::FfnGovernor governor(
      **model, *transformer,
      {.audit_interval = ffn.audit_interval, .controller_recall = ffn.controller_recall});
  auto draft = spec::LoadDraft(spec, options);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  const auto speculation = spec::Speculation::Create({.options = spec,
                                                      .draft = *std::move(draft),
                                                      .target = **model,
                                                      .transformer = *transformer,
                                                      .cache = *cache,
                                                      .sampler = sampler});
  ASSERT_TRUE(speculation.ok()) << speculation.status().message();
  sched::DecodeLoop loop({.transformer = *transformer,
                          .cache = *cache,
                          .prefixes = nullptr,
                          .sampler = sampler,
                          .decoder = (*speculation)->decoder(),
                          .spec_mode = (*speculation)->mode(),
                          .spec_tokens = (*speculation)->tokens_max(),
                          .governor = governor,
                          .model = **model,
                          .tokenizer = *(*model)->tokenizer});
  const auto run = [&](int max_tokens) {
    TokenChannel::Update update;
    TokenChannel::ReserveBuffers(update);
    sched::Job job{.request = {.prompt = {1, 400, 500},
                               .sampling = {},
                               .max_tokens = max_tokens,
                               .stop = {"zzzz"},
                               .ffn_mode = request_mode,
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
  run(10);
  const int few = run(20), many = run(400);
  EXPECT_EQ(few, many) << ffn.modes << ": 380 further tokens made " << many - few << " allocations";
}

TEST(DecodeLoop, AllocatesNothingPerDraftedToken) {
  for (const char* mode : {"sync", "branch", "auto"}) {
    SpecOptions spec;
    spec.mode = mode;
    ExpectNoAllocations({}, "", {}, spec);
    spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
    ExpectNoAllocations({}, "", {}, spec);
  }
}

TEST(DecodeLoop, AllocatesNothingPerToken) {
  ExpectNoAllocations({});
  ExpectNoAllocations({.modes = "dense", .also = "", .side_car = ""});
  ExpectNoAllocations({.modes = "exact", .also = "", .side_car = ""});
}

class PredictingDecodeLoop : public testing::Test {
 protected:
  void TearDown() override { std::remove(side_car_.c_str()); }
  const std::string side_car_ =
      testing::TempDir() + "allocation_" + std::to_string(::getpid()) + ".tcp";
};

TEST_F(PredictingDecodeLoop, AllocatesNothingPerTokenAuditedOrNot) {
  const auto file = model::OpenModelFile(SOURCE_DIR "/config/models/tidepool.gguf");
  predictor::SideCar side_car = predictor::EmptySideCar(*predictor::IdentityOf(**file));
  for (predictor::LayerSideCar& layer : side_car.layers) {
    layer.threshold = 0.1F;
    layer.low_rank =
        predictor::LowRankPredictor{.rank = 16,
                                    .fc1 = std::vector<std::uint16_t>(16 * 256, 0x2C00),
                                    .fc2 = std::vector<std::uint16_t>(1024 * 16, 0x2C00),
                                    .settings = ""};
  }
  ASSERT_TRUE(predictor::WriteSideCar(side_car_, side_car).ok());
  for (const char* modes : {"sign", "lowrank", "threshold", "sign,0:dense,1:exact,2:lowrank"}) {
    for (const int interval : {0, 1, 3})
      ExpectNoAllocations({.modes = modes,
                           .also = "",
                           .side_car = side_car_,
                           .audit_interval = interval,
                           .controller_recall = interval > 0 ? 0.97 : 0});
  }
  ExpectNoAllocations({.modes = "exact", .also = "sign", .side_car = "", .audit_interval = 2},
                      "sign");
}

// Also while neurons come from flash, are evicted and read ahead.
TEST(FlashDecodeLoop, AllocatesNothingPerToken) {
  base::ConfigureLog(base::LogLevel::kError, false);
  const std::string bundle = testing::TempDir() + "allocation_" + std::to_string(::getpid());
  exec::PackNeurons(SOURCE_DIR "/config/models/tidepool.gguf", bundle);
  for (const char* mode : {"exact", "sign", "dense"}) {
    ExpectNoAllocations({.modes = mode, .also = "sign", .side_car = ""}, "",
                        {.ffn_share = 0.7, .bundle = bundle});
  }
  std::remove(bundle.c_str());
}

}  // namespace
}  // namespace thermocline
