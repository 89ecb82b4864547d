// Loading with an emulated GPU: planned, filled and used, or rejected with the reason.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/engine.h"
#include "tests/cuda_emulated/emulator.h"
#include "tests/engine/exec/device_models.h"
#include "tests/engine/exec/flash_models.h"
#include "tests/engine/gpu/fast_machine.h"

namespace thermocline::gpu {
namespace {

class DeviceLoad : public exec::FfnModels {
 protected:
  // The speeds are measured once for all tests.
  static void SetUpTestSuite() {
    base::ConfigureLog(base::LogLevel::kError, false);
    FastMachine::SetUp();
    cuda_emulated::SetMachine({});
    // An emulated device measures slower than the CPU, so loading rejects it, unless the processor
    // is busy.
    const auto slow = load::LoadModel(Options(HotDevice::kCuda));
    if (!slow.ok()) {
      ASSERT_EQ(slow.status().code(), StatusCode::kFailedPrecondition) << slow.status().message();
    }
    FastMachine::MakeFast();
  }
  static void TearDownTestSuite() { FastMachine::TearDown(); }
  void TearDown() override {
    cuda_emulated::Inject({});
    cuda_emulated::SetMachine({});
    static_cast<void>(kernels::EmulatedOps().runtime.reset());
    exec::FfnModels::TearDown();
  }

  static load::LoadOptions Options(HotDevice device, std::int64_t bytes = 0) {
    load::LoadOptions options;
    options.model.path = exec::kTidepool;
    options.model.threads = 2;
    options.model.ffn.modes = "exact";
    options.model.context_length = 96;
    options.sizes.tokens_max = 16;
    options.model.hot.device = device;
    options.model.hot.bytes = bytes;
    options.device_ops = &kernels::EmulatedOps();
    return options;
  }

  // The plan of the host's memory counts at least the memory mapped for a device, and beyond it
  // only memory that this placement does not need.
  static void ExpectPlannedHostBytes(const load::LoadedModel& model) {
    std::size_t mapped = 0;
    for (const cuda_emulated::Memory& m : cuda_emulated::AllMemory())
      mapped += m.written == nullptr ? m.end - m.begin : 0;
    const DeviceForward& forward = *model.device_forward;
    const std::size_t planned =
        DeviceForward::HostBytesMax({.config = model.config,
                                     .tokens_max = forward.tokens_max(),
                                     .logits_max = forward.logits_max(),
                                     .context_length = forward.context_length(),
                                     .audits = model.audits()});
    const std::size_t residual = base::Area(forward.tokens_max(), model.config.hidden_size) * 4;
    EXPECT_GT(mapped, 0U);
    EXPECT_LE(mapped, planned);
    EXPECT_GE(mapped + 2 * DeviceExchange::Bytes(model.config, forward.tokens_max()) +
                  HostSharedFfn::Bytes(model.config, forward.tokens_max()) + residual +
                  DeviceUploader::kPieceBytes,
              planned);
  }

  static std::vector<int> Greedy(const load::LoadedModel& model, int count) {
    const auto transformer = model.MakeTransformer(16, 96);
    const auto cache = *model.MakeCache(96);
    std::vector<int> tokens = {1, 400, 500};
    auto logits = transformer->Forward(tokens, *cache, exec::Transformer::Logits::kLast,
                                       exec::Transformer::Step::kPrefill);
    while (static_cast<int>(tokens.size()) < count && logits.ok()) {
      const auto best = std::max_element(logits->begin(), logits->end());
      tokens.push_back(static_cast<int>(best - logits->begin()));
      logits = transformer->Forward(std::span(&tokens.back(), 1), *cache,
                                    exec::Transformer::Logits::kLast);
    }
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return tokens;
  }
};

// Layers without GPU kernels stay on the CPU: `auto` reports it, `cuda` rejects the model.
TEST_F(DeviceLoad, FamiliesOfTheCpuStayThere) {
  for (const char* family : {"gemma2", "gemma3", "olmo2", "smollm3", "granite", "ministral3"}) {
    load::LoadOptions options = Options(HotDevice::kCuda);
    options.model.path = exec::Family(family);
    options.model.ffn.modes = "dense";
    const auto refused = load::LoadModel(options);
    ASSERT_FALSE(refused.ok()) << family;
    EXPECT_NE(refused.status().message().find("are computed by the CPU"), std::string::npos)
        << refused.status().message();
    options.model.hot.device = HotDevice::kAuto;
    const auto loaded = load::LoadModel(options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ((*loaded)->device, nullptr);
  }
}

TEST_F(DeviceLoad, PlansFillsAndUsesTheDevice) {
  load::LoadOptions alone = Options(HotDevice::kCpu);
  const auto cpu = load::LoadModel(alone);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  EXPECT_EQ((*cpu)->device, nullptr);
  const auto want = Greedy(**cpu, 24);
  for (const HotDevice device : {HotDevice::kCuda, HotDevice::kAuto}) {
    const auto gpu = load::LoadModel(Options(device));
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    ASSERT_NE((*gpu)->device, nullptr);
    EXPECT_TRUE((*gpu)->hot.used);
    EXPECT_TRUE((*gpu)->hot.fallback.empty());
    EXPECT_NE((*gpu)->hot.device, "cpu");
    EXPECT_GT((*gpu)->hot.bytes, 0);
    EXPECT_EQ(Greedy(**gpu, 24), want);
  }
}

TEST_F(DeviceLoad, KeepsWithinItsMemory) {
  const auto all = load::LoadModel(Options(HotDevice::kCuda));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ((*all)->hot.neurons, (*all)->hot.neurons_all);
  ExpectPlannedHostBytes(**all);
  const auto none = load::LoadModel(Options(HotDevice::kCuda, 1000));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kFailedPrecondition) << none.status().message();
}

TEST_F(DeviceLoad, SaysWhyADeviceCannotBeUsed) {
  cuda_emulated::SetMachine({.devices = 0});
  const auto asked = load::LoadModel(Options(HotDevice::kCuda));
  ASSERT_FALSE(asked.ok());
  EXPECT_NE(asked.status().message().find("cuda"), std::string::npos) << asked.status().message();
  const auto any = load::LoadModel(Options(HotDevice::kAuto));
  ASSERT_TRUE(any.ok()) << any.status().message();
  EXPECT_EQ((*any)->hot.device, "cpu");
  EXPECT_FALSE((*any)->hot.fallback.empty());
  EXPECT_FALSE((*any)->hot.used);
  EXPECT_EQ(Greedy(**any, 8).size(), 8U);
}

// A dense model, whose layers are whole on one side.
TEST_F(DeviceLoad, TakesWholeLayersOfADenseModel) {
  load::LoadOptions options = Options(HotDevice::kCpu);
  options.model.path = exec::Family("llama3");
  options.model.ffn.modes = "dense";
  options.model.context_length = 64;
  const auto cpu = load::LoadModel(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  options.model.hot.device = HotDevice::kCuda;
  const auto gpu = load::LoadModel(options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  EXPECT_EQ((*gpu)->device->placement().home_layers, (*gpu)->config.num_hidden_layers);
  EXPECT_EQ((*gpu)->hot.neurons, (*gpu)->hot.neurons_all);
}

TEST_F(DeviceLoad, AShadowIsKeptWhereAllNeuronsFit) {
  load::LoadOptions options = Options(HotDevice::kCuda);
  options.model.ffn.audit_interval = 1;
  options.model.ffn.audit_shadow = AuditShadow::kAuto;
  const auto all = load::LoadModel(options);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ((*all)->audit_shadow, FfnMode::kSign);
  EXPECT_EQ((*all)->hot.neurons, (*all)->hot.neurons_all);
  EXPECT_TRUE((*all)->audits());
  ExpectPlannedHostBytes(**all);
}

// A mode's predictor stays when the shadow's is dropped.
TEST_F(DeviceLoad, AShadowGivenUpLeavesTheModesPredictor) {
  load::LoadedModel model;
  model.predictors = std::make_unique<predictor::Predictors>();
  predictor::LayerPredictors& layer = model.predictors->layers.emplace_back();
  layer.sign.emplace();
  layer.low_rank.emplace();
  layer.down_norms = {1};
  model.audit_shadow = FfnMode::kSign;
  model.shadow_alone = true;
  model.DropShadow();
  EXPECT_FALSE(layer.sign.has_value());
  EXPECT_TRUE(layer.low_rank.has_value());
  EXPECT_TRUE(model.audits());
}

// Layers that are computed whole have no threshold to adjust.
TEST_F(DeviceLoad, AControllerWithoutNeuronMajorRowsIsRefused) {
  load::LoadOptions options = Options(HotDevice::kCuda);
  options.model.path = Convert(exec::kTidepoolFolder, {.down = model::DownLayout::kColumns});
  options.model.ffn.modes = "sign";
  options.model.ffn.audit_interval = 1;
  options.model.ffn.controller_recall = 0.9;
  const auto refused = load::LoadModel(options);
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.status().message().find("engine.controller_recall"), std::string::npos)
      << refused.status().message();
  options.model.hot.device = HotDevice::kAuto;
  const auto on_cpu = load::LoadModel(options);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status().message();
  EXPECT_NE((*on_cpu)->hot.fallback.find("engine.controller_recall"), std::string::npos);
}

TEST_F(DeviceLoad, ModeInputsIsTheProcessors) {
  load::LoadOptions options = Options(HotDevice::kCuda);
  options.model.ffn.modes = "inputs";
  const auto refused = load::LoadModel(options);
  EXPECT_NE(refused.status().message().find("computed by the CPU alone"), std::string::npos)
      << refused.status().message();
}

// Attention and hot neurons on the device, the others in the cache and on flash, at every budget.
TEST_F(DeviceLoad, NeuronsOnFlashBesideTheDevice) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  const auto cpu = load::LoadModel(Options(HotDevice::kCpu));
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto want = Greedy(**cpu, 24);
  std::int64_t fewest = 1 << 30;
  constexpr std::int64_t kMiB = 1 << 20;
  for (const std::int64_t bytes : {0 * kMiB, 519 * kMiB, 517 * kMiB}) {  // 512 are held in reserve
    for (const double share : {0.7, 0.5}) {
      load::LoadOptions options = Options(HotDevice::kCuda, bytes);
      options.model.memory = {.ffn_share = share, .bundle = bundle};
      const auto gpu = load::LoadModel(options);
      ASSERT_TRUE(gpu.ok()) << gpu.status().message();
      ASSERT_NE((*gpu)->device, nullptr);
      ASSERT_NE((*gpu)->flash, nullptr);
      EXPECT_EQ(Greedy(**gpu, 24), want) << bytes << " " << share;
      const HotStats& hot = (*gpu)->hot;
      std::printf("  %d MiB: %d of %d neurons\n", static_cast<int>(bytes / kMiB),
                  static_cast<int>(hot.neurons), static_cast<int>(hot.neurons_all));
      EXPECT_GT(hot.neurons, 0);
      EXPECT_LE(hot.neurons, fewest);
      if (hot.neurons < hot.neurons_all) {
        EXPECT_GT((*gpu)->flash_counters().needed, 0) << bytes;
        EXPECT_GT((*gpu)->flash_counters().bytes, 0) << bytes;
      }
      fewest = hot.neurons;
      // Weights that only the device needs are freed on the host.
      EXPECT_EQ((*gpu)->weights->layers[0].q.weight.data, nullptr);
    }
  }
  EXPECT_LT(fewest, std::int64_t{6} * (*cpu)->config.intermediate_size);
}

// Each answer's statistics are complete at its end; drafts in verification are not audited.
TEST_F(DeviceLoad, AnswersAreAuditedWithDraftsAndWithout) {
  EngineConfig config;
  config.model.path = exec::kTidepool;
  config.model.threads = 2;
  config.model.context_length = 96;
  config.serving.prefill_chunk = 16;
  config.model.ffn = {.modes = "sign", .audit_interval = 1, .controller_recall = 0.95};
  config.model.hot.device = HotDevice::kCuda;
  config.device_ops = &kernels::EmulatedOps();
  config.model.spec.mode = SpecMode::kSync;
  config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  std::int64_t before = 0;
  for (const SpecMode mode : {SpecMode::kOff, SpecMode::kSync}) {
    Request request;
    request.prompt = {1, 400, 500};
    request.sampling.temperature = 0;
    request.max_tokens = 24;
    request.spec_mode = mode;
    const auto channel = *(*engine)->Submit(std::move(request), {});
    TokenChannel::Update update;
    while (!update.finished) channel->WaitForUpdate(update);
    EXPECT_TRUE(update.error.ok()) << update.error.message();
    const FfnLayerStats first = (*engine)->Stats().ffn.front();
    EXPECT_GT(first.audited_tokens, before) << SpecModeName(mode);
    EXPECT_GT(first.tp, 0);
    EXPECT_TRUE(first.controlled);
    before = first.audited_tokens;
  }
}

// The target on the device, its draft on the CPU: the text is plain decoding's.
TEST_F(DeviceLoad, DraftsForATargetOnTheDevice) {
  EngineConfig config;
  config.model.path = exec::kTidepool;
  config.model.threads = 2;
  config.model.context_length = 96;
  config.serving.prefill_chunk = 16;
  config.model.ffn.modes = "exact";
  config.model.hot.device = HotDevice::kCuda;
  config.device_ops = &kernels::EmulatedOps();
  config.model.spec.mode = SpecMode::kBranch;
  config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE((*engine)->Stats().hot.used);
  const auto ask = [&](SpecMode mode) {
    Request request;
    request.prompt = {1, 400, 500};
    request.sampling.temperature = 0;
    request.max_tokens = 16;
    request.spec_mode = mode;
    const auto channel = *(*engine)->Submit(std::move(request), {});
    TokenChannel::Update update;
    std::vector<int> tokens;
    while (!update.finished) {
      channel->WaitForUpdate(update);
      tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
    }
    EXPECT_TRUE(update.error.ok()) << update.error.message();
    return tokens;
  };
  const std::vector<int> plain = ask(SpecMode::kOff);
  EXPECT_EQ(plain.size(), 16u);
  EXPECT_EQ(ask(SpecMode::kSync), plain);
  EXPECT_EQ(ask(SpecMode::kBranch), plain);
  EXPECT_GT((*engine)->Stats().spec.accepted_tokens, 0);
}

// After one error the device is set up again; after another no request can work, and the callback
// for fatal errors is called once.
TEST_F(DeviceLoad, ADeviceThatStaysBrokenIsFatal) {
  std::atomic<int> fatal{0};
  EngineConfig config;
  config.model.path = exec::kTidepool;
  config.model.threads = 2;
  config.model.context_length = 96;
  config.serving.prefill_chunk = 16;
  config.model.ffn.modes = "exact";
  config.model.hot.device = HotDevice::kCuda;
  config.device_ops = &kernels::EmulatedOps();
  config.on_fatal = [&] { ++fatal; };
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto ask = [&] {
    Request request;
    request.prompt = {1, 400, 500};
    request.sampling.temperature = 0;
    request.max_tokens = 4;
    const auto channel = *(*engine)->Submit(std::move(request), {});
    TokenChannel::Update update;
    while (!update.finished) channel->WaitForUpdate(update);
    return update.error.ok();
  };
  const cuda_emulated::Fault broken{.after = 0, .error = cudaErrorUnknown, .sticky = true};
  EXPECT_TRUE(ask());
  cuda_emulated::Inject(broken);
  EXPECT_FALSE(ask());
  EXPECT_TRUE(ask());  // the context was rebuilt
  EXPECT_EQ(fatal, 0);
  cuda_emulated::Inject(broken);
  EXPECT_FALSE(ask());
  EXPECT_FALSE(ask());
  EXPECT_FALSE(ask());
  EXPECT_EQ(fatal, 1);
}

}  // namespace
}  // namespace thermocline::gpu
