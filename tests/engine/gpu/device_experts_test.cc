// Experts divided between the CPU and a second side, a partition of the CPU or an emulated device:
// the result is that of one side.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/load/loaded_model.h"
#include "tests/cuda_emulated/emulator.h"
#include "tests/engine/exec/device_models.h"

namespace thermocline::gpu {
namespace {

using Logits = std::vector<float>;

constexpr int kPrompt = 21, kSteps = 6, kContext = 64, kStepTokens = 32;
const char* const kMixtures[] = {"qwen3moe", "gpt_oss", "ernie4_5_moe", "smallthinker"};

class SharedExperts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    cuda_emulated::SetMachine({});
  }
  void TearDown() override {
    cuda_emulated::Inject({});
    static_cast<void>(kernels::EmulatedOps().runtime.reset());
  }

  static std::string Golden(const std::string& name) {
    return std::string(SOURCE_DIR "/tests/golden/architectures/") + name;
  }
  static std::unique_ptr<load::LoadedModel> Load(const std::string& path) {
    load::LoadOptions options;
    options.model.path = path;
    options.model.threads = 2;
    options.model.context_length = kContext;
    options.model.kv_type = kernels::KvType::kF32;
    options.sizes.tokens_max = kStepTokens;
    auto model = load::LoadModel(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return *std::move(model);
  }
  // Every second expert of every layer with experts.
  static void SplitExperts(load::LoadedModel& model) {
    std::vector<std::vector<int>> hot(model.weights->layers.size());
    for (std::size_t l = 0; l < hot.size(); ++l)
      for (int e = 0;
           model.weights->layers[l].experts.any() && e < model.config.experts.num_experts; e += 2)
        hot[l].push_back(e);
    model.hot_experts = std::make_unique<ffn::HotExperts>(ffn::HotExperts::Params{
        .config = model.config, .weights = *model.weights, .flash = nullptr, .hot = hot});
    ASSERT_TRUE(model.hot_experts->FixAddresses().ok());
    model.hot_threads = 2;
  }
  static void PlaceOnDevice(load::LoadedModel& model) {
    SplitExperts(model);
    auto gpu = device::Device::Open({.ops = &kernels::EmulatedOps(), .nodes = "/dev"});
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    model.gpu = *std::move(gpu);
    auto experts = DeviceExperts::Create({.device = *model.gpu,
                                          .config = model.config,
                                          .weights = *model.weights,
                                          .hot = *model.hot_experts,
                                          .tokens_max = kStepTokens});
    ASSERT_TRUE(experts.ok()) << experts.status().message();
    model.device_experts = *std::move(experts);
  }
  // Logits of a prompt and of tokens one by one.
  static Logits Run(const load::LoadedModel& model, exec::Transformer& transformer) {
    using Wanted = exec::Transformer::Logits;
    auto cache = *model.MakeCache(kContext);
    std::vector<int> prompt;
    for (int i = 0; i < kPrompt; ++i) prompt.push_back(3 + i * 7 % 80);
    Logits all;
    auto got = transformer.Forward(prompt, *cache, Wanted::kAll, exec::Transformer::Step::kPrefill);
    for (int i = 0; got.ok() && i <= kSteps; ++i) {
      all.insert(all.end(), got->begin(), got->end());
      const int token = 5 + i;
      got = transformer.Forward({&token, 1}, *cache, Wanted::kLast);
    }
    EXPECT_TRUE(got.ok()) << got.status().message();
    return all;
  }
  static Logits Run(const load::LoadedModel& model) {
    return Run(model, *model.MakeTransformer(kStepTokens, kContext, kPrompt));
  }
};

INSTANTIATE_TEST_SUITE_P(Mixtures, SharedExperts, testing::ValuesIn(kMixtures));

TEST_P(SharedExperts, ASecondPartitionOfTheCpuGivesTheBitsOfOne) {
  const Logits one = Run(*Load(Golden(GetParam())));
  const auto model = Load(Golden(GetParam()));
  SplitExperts(*model);
  const auto transformer = model->MakeTransformer(kStepTokens, kContext, kPrompt);
  EXPECT_EQ(Run(*model, *transformer), one);
  const ffn::HybridCounters c = transformer->hybrid_counters();
  EXPECT_GT(c.hot.active, 0);
  EXPECT_GT(c.cold.active, 0);
  EXPECT_GT(c.hot.busy_s, 0);
  EXPECT_LE(c.wait_s, c.total_s);
}

// The device's float kernels differ by 1e-5.
TEST_P(SharedExperts, ADeviceIsAsNearAsItsFloatKernels) {
  const Logits one = Run(*Load(Golden(GetParam())));
  const auto model = Load(Golden(GetParam()));
  PlaceOnDevice(*model);
  const auto transformer = model->MakeTransformer(kStepTokens, kContext, kPrompt);
  const Logits two = Run(*model, *transformer);
  ASSERT_EQ(two.size(), one.size());
  float most = 0;
  for (const float value : one) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(two[i], one[i], 1e-4F * most) << i;
  EXPECT_GT(transformer->hybrid_counters().hot.active, 0);
}

// Quantized products and ReLU have the CPU's bits on the device, and so has the text.
TEST_F(SharedExperts, AQuantisedReluModelHasTheSameBitsOnTheDevice) {
  const std::string path = SOURCE_DIR "/config/models/tidepool-experts.gguf";
  const Logits one = Run(*Load(path));
  const auto model = Load(path);
  PlaceOnDevice(*model);
  const auto transformer = model->MakeTransformer(kStepTokens, kContext, kPrompt);
  EXPECT_EQ(Run(*model, *transformer), one);
  EXPECT_GT(transformer->hybrid_counters().hot.active, 0);
}

// The host has every expert, so a failing device costs no request.
TEST_F(SharedExperts, ADeviceThatFailsIsGivenUpWithinTheStep) {
  const Logits one = Run(*Load(Golden("smallthinker")));
  for (const int after : {0, 5, 40}) {
    const auto model = Load(Golden("smallthinker"));
    PlaceOnDevice(*model);
    const auto transformer = model->MakeTransformer(kStepTokens, kContext, kPrompt);
    cuda_emulated::Inject({.after = after, .error = cudaErrorUnknown, .sticky = true});
    const Logits two = Run(*model, *transformer);
    ASSERT_EQ(two.size(), one.size()) << after;
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(two[i], one[i], 1e-3F) << after;
    EXPECT_FALSE(transformer->ffn().experts()->lost().ok());
    cuda_emulated::Inject({});
  }
}

// When the cached measurements say that the device is slow, it gets no experts; when they say fast,
// it does.
TEST_F(SharedExperts, LoadingGivesAFastDeviceExperts) {
  const std::string cache = testing::TempDir() + "experts_cache_" + std::to_string(::getpid());
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  load::LoadOptions options;
  options.model.path = Golden("qwen3moe");
  options.model.threads = 2;
  options.model.context_length = kContext;
  options.model.hot.device = HotDevice::kAuto;
  options.sizes.tokens_max = kStepTokens;
  options.device_ops = &kernels::EmulatedOps();
  ASSERT_TRUE(load::LoadModel(options).ok());  // measures the device
  const auto remember = [&](double bytes_per_s, double layer_s) {
    for (const auto& entry : std::filesystem::directory_iterator(cache + "/thermocline/machine")) {
      Json machine = *base::ParseJson(*base::ReadFileToString(entry.path().string()));
      Json hot = *machine.Find("hot");
      for (const char* rate : {"dense_bytes_per_s", "whole_bytes_per_s"})
        hot.Set(rate, bytes_per_s);
      hot.Set("layer_s", layer_s);
      machine.Set("hot", hot);
      machine.Set("sync_s", 0.0);
      machine.Set("link_bytes_per_s", 1e15);
      std::ofstream(entry.path()) << machine.Dump(0);
    }
  };
  remember(1e3, 1.0);
  const auto slow = load::LoadModel(options);
  ASSERT_TRUE(slow.ok()) << slow.status().message();
  EXPECT_FALSE((*slow)->hot.used);
  EXPECT_NE((*slow)->hot.fallback.find("no expert is faster"), std::string::npos)
      << (*slow)->hot.fallback;
  remember(1e15, 0.0);
  const auto fast = load::LoadModel(options);
  ASSERT_TRUE(fast.ok()) << fast.status().message();
  EXPECT_TRUE((*fast)->hot.used) << (*fast)->hot.fallback;
  EXPECT_GT((*fast)->hot.neurons, 0);
  EXPECT_GT((*fast)->hot.bytes, 0);
  const auto transformer = (*fast)->MakeTransformer(kStepTokens, kContext, kPrompt);
  Run(**fast, *transformer);
  EXPECT_GT(transformer->hybrid_counters().hot.active, 0);
  // Without room for a single expert the CPU computes all.
  options.model.hot.bytes = 1000;
  const auto none = load::LoadModel(options);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE((*none)->hot.used);
  options.model.hot.device = HotDevice::kCuda;
  EXPECT_FALSE(load::LoadModel(options).ok());
  std::filesystem::remove_all(cache);
}

}  // namespace
}  // namespace thermocline::gpu
