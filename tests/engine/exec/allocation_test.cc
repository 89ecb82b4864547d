// The decode loop does not allocate: global new is counted while tokens are generated.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/log.h"
#include "engine/ffn/cpu_partition.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/load/loaded_model.h"
#include "engine/model/open/open_model.h"
#include "engine/predictor/identity.h"
#include "engine/sched/decode_loop.h"
#include "engine/spec/set_up.h"
#include "tests/engine/exec/flash_models.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
std::atomic<std::size_t> held_bytes{0};  // allocated during counting and not freed
}  // namespace

#pragma GCC diagnostic ignored \
    "-Wmismatched-new-delete"  // malloc and free are the pair behind both operators

void* operator new(std::size_t size) {
  void* p = std::malloc(size);
  if (counting) {
    ++allocations;
    held_bytes += ::malloc_usable_size(p);
  }
  if (p != nullptr) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  if (counting) held_bytes -= ::malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace thermocline {
namespace {

load::LoadOptions Tidepool(const FfnOptions& ffn, const MemoryOptions& memory) {
  load::LoadOptions options;
  options.model.memory = memory;
  options.model.path = SOURCE_DIR "/config/models/tidepool.gguf";
  options.model.threads = 2;
  options.model.ffn = ffn;
  return options;
}

// Counts the allocations for further tokens of a request in one mode.
void ExpectNoAllocations(const FfnOptions& ffn, const std::string& request_mode = "",
                         const MemoryOptions& memory = {}, const SpecOptions& spec = {},
                         const std::string& grammar = "") {
  load::LoadOptions options = Tidepool(ffn, memory);
  spec::AddDraftNeeds(spec, options);
  const auto model = load::LoadModel(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto transformer = (*model)->MakeTransformer(16, 512, 16);
  auto cache = *(*model)->MakeCache(512);
  sampling::Sampler sampler((*model)->config.vocab_size, 1024);
  adapt::FfnGovernor governor(
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
  const sched::AnswerSteps answers({.prefixes = nullptr,
                                    .tokenizer = *(*model)->tokenizer,
                                    .capacity = cache->capacity(),
                                    .logits_max = 16});
  sched::DecodeLoop loop({.transformer = *transformer,
                          .cache = *cache,
                          .answers = answers,
                          .sampler = sampler,
                          .decoder = (*speculation)->decoder(),
                          .spec_mode = (*speculation)->mode(),
                          .spec_tokens = (*speculation)->tokens_max(),
                          .governor = governor,
                          .logits_max = 16});
  std::shared_ptr<const grammar::CompiledGrammar> constraint;
  grammar::GrammarCompiler compiler(*(*model)->tokenizer, (*model)->config.vocab_size, {});
  if (!grammar.empty()) {
    constraint = *compiler.Compile({.kind = GrammarSpec::Kind::kGbnf, .text = grammar});
  }
  const auto run = [&](int max_tokens) {
    TokenChannel::Update update;
    TokenChannel::ReserveBuffers(update);
    Request request;
    request.prompt = {1, 400, 500};
    request.max_tokens = max_tokens;
    request.stop = {"zzzz"};
    request.ffn_mode = request_mode;
    request.ignore_eos = true;
    request.sampling.top_p = 0.9;
    request.sampling.repetition_penalty = 1.1;
    request.sampling.constraint = constraint;
    std::shared_ptr<TokenChannel> channel;
    channel = std::make_shared<TokenChannel>([&] { channel->TakeUpdate(update); });
    sched::Sequence sequence(
        {.request = std::move(request), .channel = channel, .submitted = sched::SteadyClock::now()},
        cache->pool(), cache->capacity(), *(*model)->tokenizer, *(*model)->ModesFor(request_mode));
    allocations = 0;
    counting = true;
    EXPECT_EQ(loop.Run(sequence), sched::TurnEnd::kFinished);
    counting = false;
    EXPECT_EQ(sequence.usage.completion_tokens, max_tokens);
    return allocations.load();
  };
  run(10);
  const int few = run(20), many = run(400);
  EXPECT_EQ(few, many) << ffn.modes << ": 380 further tokens made " << many - few << " allocations";
}

TEST(DecodeLoop, AllocatesNothingPerDraftedToken) {
  for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch, SpecMode::kAuto}) {
    SpecOptions spec;
    spec.mode = mode;
    ExpectNoAllocations({}, "", {}, spec);
    spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
    ExpectNoAllocations({}, "", {}, spec);
    spec.draft = "";
    spec.source = SpecSource::kSelf;
    ExpectNoAllocations({}, "", {}, spec);
  }
}

TEST(DecodeLoop, AllocatesNothingPerToken) {
  ExpectNoAllocations({});
  ExpectNoAllocations({.modes = "dense", .also = "", .side_car = ""});
  ExpectNoAllocations({.modes = "exact", .also = "", .side_car = ""});
}

TEST(DecodeLoop, AllocatesNothingPerTokenUnderAGrammar) {
  const std::string grammars[] = {"root ::= [a-zA-Z ,.]{8000}",
                                  // A grammar with forced tokens.
                                  R"(root ::= item{600}
         item ::= "{\"name\": \"" [a-z]{1,9} "\"}\n")"};
  SpecOptions spec;
  for (const std::string& grammar : grammars) {
    spec.mode = SpecMode::kOff;
    ExpectNoAllocations({}, "", {}, spec, grammar);
    spec.mode = SpecMode::kSync;
    spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
    ExpectNoAllocations({}, "", {}, spec, grammar);
  }
}

class PredictingDecodeLoop : public testing::Test {
 protected:
  void WriteSideCar() const {
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
  }
  void TearDown() override { std::remove(side_car_.c_str()); }
  const std::string side_car_ =
      testing::TempDir() + "allocation_" + std::to_string(::getpid()) + ".tcp";
};

TEST_F(PredictingDecodeLoop, AllocatesNothingPerTokenAuditedOrNot) {
  WriteSideCar();
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

// The parts allocate the planned bytes: no less, and little more (a panel is counted as floats,
// ranks as the largest).
void ExpectPlannedBytes(const FfnOptions& ffn, const MemoryOptions& memory = {},
                        const HotOptions& hot = {}) {
  constexpr int kTokens = 24, kContext = 700, kLogits = 3;
  load::LoadOptions options = Tidepool(ffn, memory);
  options.model.hot = hot;
  auto model = load::LoadModel(options);
  // The plan follows a measurement of the machine, which may have been busy in that moment.
  options.model.hot.calibrate = true;
  for (int i = 0; i < 20 && hot.bytes > 0 && model.ok() && !(*model)->hot.used; ++i)
    model = load::LoadModel(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const model::ModelConfig& config = (*model)->config;
  held_bytes = 0;
  counting = true;
  const auto transformer = (*model)->MakeTransformer(kTokens, kContext, kLogits);
  const sampling::Sampler sampler(config.vocab_size, kContext);
  counting = false;
  ffn::FfnSizes sizes{.config = config,
                      .tokens_max = kTokens,
                      .threads = (*model)->pool->threads(),
                      .sign = ffn.modes == "sign",
                      .rank = ffn.modes == "lowrank" ? 16 : 0,
                      .flash = memory.ffn_share > 0};
  std::size_t planned = exec::Transformer::BufferBytes({.config = config,
                                                        .tokens_max = kTokens,
                                                        .logits_max = kLogits,
                                                        .context_length = kContext,
                                                        .threads = sizes.threads},
                                                       sizes) +
                        sampling::Sampler::Bytes(config.vocab_size, kContext);
  if (hot.bytes > 0) {
    EXPECT_TRUE((*model)->hot.used);
    sizes.threads = (*model)->hot_threads;
    planned += ffn::HybridFfn::Bytes(config, kTokens) + ffn::CpuPartition::Bytes(sizes);
  }
  constexpr std::size_t kSmall = 16 << 10;  // for the objects themselves
  const std::size_t panels = 2 * nn::PanelScratchBytesMax(config);
  EXPECT_LE(held_bytes, planned + kSmall) << ffn.modes;
  EXPECT_GE(held_bytes + panels + kSmall, planned) << ffn.modes;
}

TEST_F(PredictingDecodeLoop, AllocatesWhatThePlanCounts) {
  WriteSideCar();
  for (const char* modes : {"dense", "exact", "sign", "lowrank"})
    ExpectPlannedBytes({.modes = modes, .also = "", .side_car = side_car_});
}

// Neurons on two sides of the CPU.
TEST(HotDecodeLoop, AllocatesWhatThePlanCounts) {
  base::ConfigureLog(base::LogLevel::kError, false);
  for (const char* modes : {"exact", "sign"})
    ExpectPlannedBytes({.modes = modes, .also = "", .side_car = ""}, {}, {.bytes = 2 << 20});
}

TEST(FlashDecodeLoop, AllocatesWhatThePlanCounts) {
  base::ConfigureLog(base::LogLevel::kError, false);
  const std::string bundle = testing::TempDir() + "planned_" + std::to_string(::getpid());
  exec::PackNeurons(SOURCE_DIR "/config/models/tidepool.gguf", bundle);
  ExpectPlannedBytes({.modes = "exact", .also = "", .side_car = ""},
                     {.ffn_share = 0.7, .bundle = bundle});
  std::remove(bundle.c_str());
}

// All samplers that use the earlier text, including drafts that are rejected.
TEST(Sampler, AllocatesNothingPerToken) {
  constexpr int kVocab = 500;
  sampling::Sampler sampler(kVocab, 400);
  SamplingParams params{
      .top_k = 200, .top_p = 0.9, .min_p = 0.01, .typical_p = 0.9, .logit_bias = {}};
  params.dry_multiplier = 0.8;
  params.dry_breakers = {7, 30};
  params.min_tokens = 100;
  params.end_tokens = {1, 2};
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i)
    logits[static_cast<std::size_t>(i)] = std::sin(0.7F * static_cast<float>(i)) * 3;
  sampler.Begin(params, std::vector<int>(100, 5));
  allocations = 0;
  counting = true;
  for (int i = 0; i < 200; ++i) {
    sampler.Accept(i % 9);
    sampler.Compute(logits);
    sampler.Retract();
    sampler.Accept(sampler.Sample(logits, i));
  }
  counting = false;
  EXPECT_EQ(allocations, 0);
}

// While neurons are read from flash, evicted and read ahead.
TEST(FlashDecodeLoop, AllocatesNothingPerToken) {
  base::ConfigureLog(base::LogLevel::kError, false);
  const std::string bundle = testing::TempDir() + "allocation_" + std::to_string(::getpid());
  exec::PackNeurons(SOURCE_DIR "/config/models/tidepool.gguf", bundle);
  for (const char* mode : {"exact", "sign"}) {
    ExpectNoAllocations({.modes = mode, .also = "sign", .side_car = ""}, "",
                        {.ffn_share = 0.7, .bundle = bundle});
  }
  std::remove(bundle.c_str());
}

}  // namespace
}  // namespace thermocline
