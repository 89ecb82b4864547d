// An emulated device that shares the host's memory: its part is decided before loading, so that no
// weights are in memory twice at any time.
#include "engine/base/system_memory.h"
#include "engine/model/open/open_model.h"
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

class OneMemory : public OnDevice {
 protected:
  void TearDown() override {
    cuda_emulated::SetMachine({});
    OnDevice::TearDown();
  }

  static load::LoadOptions Options(const std::string& path, HotDevice device = HotDevice::kCuda) {
    load::LoadOptions options;
    options.model.path = path;
    options.model.threads = 1;
    options.model.kv_type = kernels::KvType::kF32;
    options.model.context_length = exec::kDeviceContext;
    options.sizes = {.tokens_max = 16, .logits_max = 16};
    options.model.hot.device = device;
    options.device_ops = &kernels::EmulatedOps();
    return options;
  }

  static std::unique_ptr<load::LoadedModel> Load(const load::LoadOptions& options,
                                                 std::size_t memory = std::size_t{4} << 30) {
    cuda_emulated::SetMachine({.memory_bytes = memory, .unified = true});
    auto model = load::LoadModel(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *std::move(model) : nullptr;
  }

  static std::size_t LargestLayer(const load::LoadedModel& model) {
    const auto sizes = *model::MeasureWeights(*model.file, {});
    return *std::max_element(sizes.images.begin(), sizes.images.end());
  }
};

TEST_F(OneMemory, NoWeightsLieThereTwiceWhileLoading) {
  for (const std::string& path : {exec::kTidepool, exec::Family("llama3"), exec::Family("phi2")}) {
    const auto late = exec::LoadPlaced({.path = path}, {});
    ASSERT_NE(late, nullptr);
    const Text want = Generate(*late, 9, 6);
    const std::size_t before = base::HugeBuffer::HeldByAll();
    base::HugeBuffer::ResetMost();
    load::LoadOptions options = Options(path);
    options.model.ffn.modes = "dense";
    const auto model = Load(options);
    ASSERT_NE(model, nullptr);
    const std::size_t most = base::HugeBuffer::MostHeldByAll() - before;
    EXPECT_EQ(model->device->placement().home_layers, model->config.num_hidden_layers);
    EXPECT_TRUE(model->device->placement().head);
    // Besides the embeddings, the host keeps only the layers' norms and biases, at most two pages
    // for each layer. The bound allows as much as two more layers for the rest.
    const model::Weights& w = *model->weights;
    const std::size_t held = w.token_embedding.bytes() + w.position_embedding.bytes() +
                             2 * model::kImageAlignment *
                                 (2 + static_cast<std::size_t>(model->config.num_hidden_layers));
    EXPECT_LE(w.memory.held(), held) << path;
    const std::size_t head = model->config.tie_word_embeddings ? 0 : w.output.weight.bytes();
    EXPECT_LE(most, held + std::max(LargestLayer(*model) + held, head + held)) << path;
    // The planned memory is the actual memory, with room for the work.
    EXPECT_GE(model->memory.total(), w.memory.held() + model->device->bytes()) << path;
    EXPECT_NE(model->memory.Table().find("GPU: weights"), std::string::npos);
    // The text and the bits of its logits are equal.
    const Text got = Generate(*model, 9, 6);
    EXPECT_EQ(got.tokens, want.tokens) << path;
    EXPECT_EQ(got.logits, want.logits) << path;
  }
}

TEST_F(OneMemory, LayersThatHaveNoRoomThereAreTheHosts) {
  load::LoadOptions options = Options(exec::kTidepool);
  options.model.ffn.modes = "exact";
  const auto all = Load(options);
  ASSERT_NE(all, nullptr);
  const Text want = Generate(*all, 6, 6);
  int least = all->config.num_hidden_layers;
  for (const double share : {0.8, 0.6}) {
    options.model.hot.bytes =
        static_cast<std::int64_t>(share * static_cast<double>(cuda_emulated::Allocated()));
    const auto some = Load(options);
    ASSERT_NE(some, nullptr);
    const int homes = some->device->placement().home_layers;
    EXPECT_LE(homes, least);
    EXPECT_LT(homes, some->config.num_hidden_layers);
    EXPECT_GT(homes, 0);
    least = homes;
    for (int l = 0; l < some->config.num_hidden_layers; ++l) {
      const model::LayerWeights& w = some->weights->layers[static_cast<std::size_t>(l)];
      EXPECT_EQ(w.q.weight.data == nullptr, l < homes) << l;
      EXPECT_EQ(w.up.linear.weight.data == nullptr, l < homes) << l;
    }
    const Text got = Generate(*some, 6, 6);
    EXPECT_EQ(got.tokens, want.tokens);
    ExpectNear(got.logits, want.logits, kQuantizedTolerance, std::to_string(homes) + " layers");
  }
}

TEST_F(OneMemory, PredictorsAreMadeOfLayersThatTheHostDoesNotHold) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0});
  WriteRandomSideCar(path, false, 24, 0.3F);
  for (const std::string modes : {"sign", "lowrank", "threshold"}) {
    const auto late = exec::LoadPlaced({.path = path, .modes = modes}, {});
    load::LoadOptions options = Options(path);
    options.model.ffn.modes = modes;
    options.model.ffn.audit_interval = 4;
    const auto early = Load(options);
    ASSERT_NE(early, nullptr);
    EXPECT_EQ(Generate(*early, 6, 5).logits, Generate(*late, 6, 5).logits) << modes;
  }
}

// As memory shrinks, the device gets fewer layers; then neurons are read from flash beside it; then
// no device is used. This test covers the second range.
TEST_F(OneMemory, NeuronsComeFromFlashWhereBothDoNotFit) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  load::LoadOptions options = Options(exec::kTidepool, HotDevice::kAuto);
  for (const std::string modes : {"exact", "dense", "sign"}) {
    options.model.ffn.modes = modes;
    options.model.memory = {};
    const auto whole = Load(options);
    ASSERT_NE(whole, nullptr);
    const Text want = Generate(*whole, 6, 12);
    const load::MemoryPlan& plan = whole->memory;
    const std::size_t parts = plan.total() + plan.given_back - plan.lines.front().bytes;
    int found = 0;
    cuda_emulated::SetMachine({.memory_bytes = std::size_t{4} << 30, .unified = true});
    for (std::size_t missing = 0; missing < parts && found < 2; missing += std::size_t{384} << 10) {
      const std::size_t program = base::ResidentBytes() + (std::size_t{32} << 20);
      options.model.memory = {.budget_bytes = static_cast<std::int64_t>(program + parts - missing),
                              .bundle = bundle};
      base::HugeBuffer::ResetMost();
      const std::size_t before = base::HugeBuffer::HeldByAll();
      const auto loaded = load::LoadModel(options);
      if (!loaded.ok() || (*loaded)->device == nullptr ||
          (*loaded)->memory.tier != load::MemoryPlan::Tier::kNeurons)
        continue;  // too much or too little memory
      const auto& model = *loaded;
      ++found;
      std::printf("  %s: %d of %d neurons on the device\n", modes.c_str(),
                  static_cast<int>(model->hot.neurons), static_cast<int>(model->hot.neurons_all));
      EXPECT_LE(model->memory.total(), model->memory.budget);
      EXPECT_LE(base::HugeBuffer::MostHeldByAll() - before + model->device->bytes(),
                model->memory.total() + model->memory.given_back);
      EXPECT_EQ(model->weights->layers[0].q.weight.data, nullptr);
      EXPECT_LT(model->hot.neurons, model->hot.neurons_all);
      EXPECT_GE(model->memory.slots, static_cast<std::size_t>(model->hot.neurons));
      const Text got = Generate(*model, 6, 12);
      EXPECT_EQ(got.tokens, want.tokens) << modes;
      ExpectNear(got.logits, want.logits, kQuantizedTolerance, modes);
      EXPECT_GT(model->flash_counters().needed, 0);
    }
    EXPECT_GE(found, 1) << modes;
  }
}

// Modes that read every gate row keep the rows in memory, if they fit; the device has its own.
TEST_F(OneMemory, GateRowsAreHeldBesideNeuronsFromFlash) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  load::LoadOptions options = Options(exec::kTidepool);
  options.model.ffn.modes = "exact";
  const auto whole = Load(options);
  ASSERT_NE(whole, nullptr);
  const Text want = Generate(*whole, 6, 12);
  options.model.memory = {.ffn_share = 0.8, .bundle = bundle};
  const auto model = Load(options);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->memory.tier, load::MemoryPlan::Tier::kNeurons);
  EXPECT_TRUE(model->memory.deciding_held);
  EXPECT_GT(model->hot.neurons, 0);
  EXPECT_LT(model->hot.neurons, model->hot.neurons_all);
  const Text got = Generate(*model, 6, 12);
  EXPECT_EQ(got.tokens, want.tokens);
  ExpectNear(got.logits, want.logits, kQuantizedTolerance, "gate rows held");
}

TEST_F(OneMemory, AModelThatDoesNotFitIsRefusedBeforeItIsRead) {
  load::LoadOptions options = Options(exec::kTidepool);
  options.model.memory.budget_bytes =
      static_cast<std::int64_t>(base::ResidentBytes() + (std::size_t{34} << 20));
  cuda_emulated::SetMachine({.unified = true});
  base::HugeBuffer::ResetMost();
  const std::size_t before = base::HugeBuffer::HeldByAll();
  const auto refused = load::LoadModel(options);
  ASSERT_EQ(refused.status().code(), StatusCode::kResourceExhausted) << refused.status().message();
  EXPECT_NE(refused.status().message().find("GPU: weights"), std::string::npos)
      << refused.status().message();
  EXPECT_LT(base::HugeBuffer::MostHeldByAll() - before, std::size_t{1} << 20);
  EXPECT_EQ(cuda_emulated::Allocated(), 0U);
}

TEST_F(OneMemory, ADeviceWithoutRoomLeavesTheModelToTheCpu) {
  const auto cpu = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const Text want = Generate(*cpu, 6, 6);
  load::LoadOptions options = Options(exec::kTidepool, HotDevice::kAuto);
  options.model.ffn.modes = "exact";
  const auto small = Load(options, 1 << 20);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->device, nullptr);
  EXPECT_NE(small->hot.fallback.find("least that a GPU can be given"), std::string::npos)
      << small->hot.fallback;
  EXPECT_EQ(Generate(*small, 6, 6).logits, want.logits);
  // The device reports room but fails, so the weights left out for it are loaded.
  const int begin = cuda_emulated::Calls();
  ASSERT_NE(Load(options)->device, nullptr);
  const int calls = cuda_emulated::Calls() - begin;
  for (const int after : {calls / 3, calls / 2, calls - calls / 8}) {
    cuda_emulated::Inject({.after = after, .error = cudaErrorUnknown, .sticky = true});
    const auto failed = Load(options);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->device, nullptr);
    EXPECT_NE(failed->hot.fallback.find("Emulated device"), std::string::npos)
        << failed->hot.fallback;
    EXPECT_EQ(Generate(*failed, 6, 6).logits, want.logits) << after;
    cuda_emulated::Inject({});
    static_cast<void>(kernels::EmulatedOps().runtime.reset());
  }
  options.model.hot.device = HotDevice::kCuda;
  cuda_emulated::Inject({.after = calls / 2, .error = cudaErrorUnknown, .sticky = true});
  EXPECT_FALSE(load::LoadModel(options).ok());
}

TEST_F(OneMemory, ADeviceThatLostItsMemoryHasItAgain) {
  load::LoadOptions options = Options(exec::Family("llama3"));
  options.model.quantize_head = true;
  const auto model = Load(options);
  ASSERT_NE(model, nullptr);
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  const auto want = Decode(*model, *transformer, *cache, 3);
  ASSERT_TRUE(want.ok());
  cuda_emulated::Inject({.after = 2, .error = cudaErrorUnknown, .sticky = true});
  EXPECT_FALSE(Decode(*model, *transformer, *cache, 2).ok());
  cache->Clear();
  const auto again = Decode(*model, *transformer, *cache, 3);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *want);
}

// A damaged weight is detected on its way to the device, too.
TEST_F(OneMemory, EveryWeightIsVerified) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0});
  {
    const auto file = *model::OpenModelFile(path);
    const model::TensorInfo* tensor = file->Find("blk.3.attn_q.weight");
    ASSERT_NE(tensor, nullptr);
    std::FILE* const raw = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(raw, nullptr);
    std::fseek(raw, static_cast<long>(tensor->offset), SEEK_SET);
    const unsigned char infinite[2] = {0x00, 0x7C};
    std::fwrite(infinite, 1, 2, raw);
    std::fclose(raw);
  }
  load::LoadOptions options = Options(path);
  options.model.verify = true;
  cuda_emulated::SetMachine({.unified = true});
  const auto damaged = load::LoadModel(options);
  ASSERT_EQ(damaged.status().code(), StatusCode::kDataLoss) << damaged.status().message();
  EXPECT_NE(damaged.status().message().find("blk.3.attn_q.weight"), std::string::npos);
}

// Without an explicit shadow, no network is kept for its audits.
TEST_F(OneMemory, AShadowOfWholeLayersIsKeptWhereItWasAskedFor) {
  const std::string path = Convert(
      exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0, .down = model::DownLayout::kColumns});
  for (const bool asked : {false, true}) {
    load::LoadOptions options = Options(path);
    options.model.ffn.modes = "exact";
    options.model.ffn.audit_interval = 1;
    options.model.ffn.audit_shadow = asked ? AuditShadow::kSign : AuditShadow::kOff;
    const auto model = Load(options);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->audits(), asked);
    EXPECT_EQ(model->weights->layers[0].up.linear.weight.data != nullptr, asked);
    EXPECT_EQ(model->weights->layers[0].q.weight.data, nullptr);
    EXPECT_GT(Generate(*model, 4, 3).logits.size(), 0U);
  }
}

}  // namespace
}  // namespace thermocline::gpu
