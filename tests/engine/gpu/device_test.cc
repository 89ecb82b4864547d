// A model on an emulated device gives the CPU's results.
//
// All ops have the CPU's bits except attention, whose exp and order of sums differ, so logits are
// compared with a tolerance. Two ways of dividing the same work between the sides give the same
// bits.
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

using kernels::DType;

TEST_F(OnDevice, WholeModelSaysWhatTheCpuSays) {
  const auto cpu = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const auto gpu = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {});
  const Text want = Generate(*cpu, 4, 40), got = Generate(*gpu, 4, 40);
  EXPECT_EQ(got.tokens, want.tokens);
  ExpectNear(got.logits, want.logits, kQuantizedTolerance, "whole");
}

// A launch into a full stream blocks its thread. The same thread computes the CPU's neurons, for
// which the device waits, so a long prompt must never fill the stream.
TEST_F(OnDevice, ALongPromptNeedsNoLongQueue) {
  const auto logits = [](std::size_t launches_max) {
    const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
    cuda_emulated::SetMachine({.launches_max = launches_max});
    const Status placed = exec::Place(*model, {.every = 2}, 80);
    EXPECT_TRUE(placed.ok()) << placed.message();
    const Text text = Generate(*model, 80, 2, 80);
    cuda_emulated::SetMachine({});
    return text.logits;
  };
  const std::vector<float> want = logits(1024);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(logits(48), want);
}

TEST_F(OnDevice, FloatWeightsAreNear) {
  const auto cpu = exec::Load({.path = exec::kTidepoolFolder, .modes = "dense"});
  const auto gpu = exec::LoadPlaced({.path = exec::kTidepoolFolder, .modes = "dense"}, {});
  const Text want = Generate(*cpu, 6, 6), got = Generate(*gpu, 6, 6);
  EXPECT_EQ(got.tokens, want.tokens);
  ExpectNear(got.logits, want.logits, kFloatTolerance, "float weights");
}

TEST_F(OnDevice, SomeLayersAndNoHead) {
  const auto cpu = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const Text want = Generate(*cpu, 6, 6);
  for (const exec::Where& where : {exec::Where{.home_layers = 3, .cpu_layers_too = false},
                                   exec::Where{.head = false}, exec::Where{.home_layers = 1}}) {
    const auto gpu = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, where);
    const Text got = Generate(*gpu, 6, 6);
    EXPECT_EQ(got.tokens, want.tokens);
    ExpectNear(got.logits, want.logits, kQuantizedTolerance,
               std::to_string(where.home_layers) + " layers");
  }
}

// Neurons of layers whose home is the CPU: all ops have the same bits.
TEST_F(OnDevice, NeuronsAloneHaveTheBitsOfTheCpu) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string path = Convert(exec::kTidepoolFolder, {.type = type});
    WriteRandomSideCar(path, false, 24, 0.3F);
    for (const std::string modes : {"exact", "sign", "threshold", "lowrank"}) {
      const auto cpu = exec::Load({.path = path, .modes = modes});
      const auto gpu =
          exec::LoadPlaced({.path = path, .modes = modes}, {.home_layers = 0, .every = 2});
      const Text want = Generate(*cpu, 20, 3, 12), got = Generate(*gpu, 20, 3, 12);
      EXPECT_EQ(got.logits, want.logits) << modes;
      EXPECT_EQ(exec::LogitsOf(*gpu, 12, 6), exec::LogitsOf(*cpu, 12, 6))
          << modes << ", six verified at once";
    }
  }
}

// Layers whose home is the device, without any neuron there, and a q8_0 KV cache.
TEST_F(OnDevice, AttentionAlone) {
  for (const auto kv : {kernels::KvType::kF32, kernels::KvType::kQ8_0, kernels::KvType::kF16}) {
    const auto cpu = exec::Load({.path = exec::kTidepool, .modes = "exact"}),
               gpu = exec::Load({.path = exec::kTidepool, .modes = "exact"});
    cpu->kv_type = gpu->kv_type = kv;
    const Status placed = exec::Place(*gpu, {.every = 0});
    ASSERT_TRUE(placed.ok()) << placed.message();
    const Text want = Generate(*cpu, 5, 3), got = Generate(*gpu, 5, 3);
    EXPECT_EQ(got.tokens, want.tokens);
    ExpectNear(got.logits, want.logits, kQuantizedTolerance,
               std::string("keys and values in ") + std::string(KvTypeName(kv)));
  }
}

// Attention of long prompts is computed in pieces, so that scratch stays small.
TEST_F(OnDevice, ScratchOfAttentionChangesNoBit) {
  std::vector<float> logits[2];
  for (const int small : {0, 1}) {
    const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
    load::DeviceSizes sizes{
        .tokens_max = 16, .context_length = exec::kDeviceContext, .logits_max = 16};
    if (small == 1) sizes.attention_bytes = 1;  // a token at a time
    ASSERT_TRUE(
        model->PlaceOnDevice(exec::OpenEmulated(), exec::PlacementOf(*model, {}), sizes).ok());
    logits[small] = Generate(*model, 30, 1).logits;
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// Attention is on the device both times, so the division of neurons must not affect the bits.
TEST_F(OnDevice, SharedLayersHaveTheBitsOfWholeOnes) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string path = Convert(exec::kTidepoolFolder, {.type = type});
    WriteRandomSideCar(path, true, 24, 0.3F);
    for (const std::string modes : {"exact", "sign", "threshold", "lowrank"}) {
      if (type == DType::kQ4_0 && modes != "exact") continue;
      const auto whole = exec::LoadPlaced({.path = path, .modes = modes}, {});
      const auto shared = exec::LoadPlaced({.path = path, .modes = modes}, {.every = 2});
      const Text want = Generate(*whole, 24, 3, 20), got = Generate(*shared, 24, 3, 20);
      EXPECT_EQ(got.tokens, want.tokens) << modes;
      EXPECT_EQ(got.logits, want.logits) << modes;
      if (modes != "sign") continue;
      EXPECT_EQ(exec::LogitsOf(*shared, 5, 5), exec::LogitsOf(*whole, 5, 5))
          << "five verified at once";
    }
  }
}

TEST_F(OnDevice, SidesThatAddFloatsAreNear) {
  for (const DType type : {DType::kQ4_1, DType::kF16}) {
    const std::string path = Convert(exec::kTidepoolFolder, {.type = type});
    const auto cpu = exec::Load({.path = path, .modes = "exact"});
    const Text want = Generate(*cpu, 10, 3);
    for (const int home : {0, 3, 6}) {
      const auto gpu =
          exec::LoadPlaced({.path = path, .modes = "exact"}, {.home_layers = home, .every = 2});
      ExpectNear(Generate(*gpu, 10, 3).logits, want.logits,
                 type == DType::kF16 ? kFloatTolerance : kQuantizedTolerance,
                 std::string(kernels::Traits(type).name) + ", home " + std::to_string(home));
    }
  }
}

TEST_F(OnDevice, EveryModeIsNearTheCpus) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0});
  WriteRandomSideCar(path, false, 24, 0.3F);
  for (const std::string modes : {"dense", "exact", "sign", "threshold", "lowrank"}) {
    const auto cpu = exec::Load({.path = path, .modes = modes});
    const auto gpu = exec::LoadPlaced({.path = path, .modes = modes}, {});
    const Text want = Generate(*cpu, 6, 4), got = Generate(*gpu, 6, 4);
    const bool chooses = modes == "sign" || modes == "lowrank" || modes == "threshold";
    ExpectNear(got.logits, want.logits, chooses ? kChosenTolerance : kQuantizedTolerance, modes);
  }
}

TEST_F(OnDevice, LayersWithoutDownRowsAreWhole) {
  for (const std::string name :
       {"llama3", "phi2", "qwen3", "opt", "mistral", "falcon7", "persimmon", "gemma", "phi3",
        "stablelm", "starcoder2", "seed_oss"}) {
    const auto cpu = exec::Load({.path = exec::Family(name)});
    for (const int home : {1, 1 << 20}) {
      const auto gpu = exec::LoadPlaced({.path = exec::Family(name)}, {.home_layers = home});
      ExpectNear(Generate(*gpu, 20, 5).logits, Generate(*cpu, 20, 5).logits, kFloatTolerance, name);
    }
  }
}

TEST_F(OnDevice, TenRunsHaveTheSameBits) {
  const auto gpu =
      exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.home_layers = 3, .every = 2});
  const Text first = Generate(*gpu, 10, 2);
  for (int run = 1; run < 10; ++run) EXPECT_EQ(Generate(*gpu, 10, 2).logits, first.logits) << run;
}

// A block that two sequences share is copied before one writes to it, on the device, too.
TEST_F(OnDevice, SharedPrefixesAreCopied) {
  const auto model = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.head = false});
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto pool = *nn::KvPool::Create({model->config, 2, model->kv_type});
  nn::KvCache first(*pool, 64), second(*pool, 64);
  const std::vector<int> tokens = exec::SomeTokens(8, model->config.vocab_size);
  const auto forward = [&](nn::KvCache& cache, int from, int to) {
    const auto part = std::span(tokens).subspan(static_cast<std::size_t>(from),
                                                static_cast<std::size_t>(to - from));
    const auto logits = *transformer->Forward(part, cache, Logits::kLast);
    return std::vector<float>(logits.begin(), logits.end());
  };
  forward(first, 0, 5);
  const nn::KvBlock block = first.block(0);
  second.Adopt(std::span(&block, 1), 5);
  const auto other = forward(second, 2, 4);  // copies
  const auto want = forward(first, 5, 8);
  second.SetLength(5);
  EXPECT_EQ(forward(second, 5, 8), want);
  EXPECT_NE(other, want);
}

TEST_F(OnDevice, CountsWhatTheDeviceReads) {
  const auto model =
      exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.home_layers = 3, .every = 2});
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  ASSERT_TRUE(Decode(*model, *transformer, *cache, 4).ok());
  const int half = model->device->layer(0).neurons;
  for (int l = 0; l < 6; ++l) {
    const ffn::FfnCounters& hot = l < 3 ? model->device_forward->ffn_counters(l)
                                        : model->device_forward->partition()->ffn_counters(l);
    EXPECT_EQ(hot.steps, 4);
    EXPECT_EQ(hot.gate_rows, 4 * half);
    EXPECT_GT(hot.up_rows, 0);
    EXPECT_LT(hot.up_rows, hot.gate_rows);
    EXPECT_EQ(transformer->ffn().counters(l).steps, 4);
  }
  const ffn::HybridCounters both = transformer->hybrid_counters();
  EXPECT_EQ(both.hot.steps, 24);
  EXPECT_EQ(both.cold.steps, 24);
  EXPECT_GT(both.hot.active, 0);
}

// Hot neurons on the device, cold ones on flash.
TEST_F(OnDevice, ColdNeuronsMayBeOnFlash) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  for (const std::string modes : {"exact", "sign"}) {
    const auto whole = exec::LoadPlaced({.path = exec::kTidepool, .modes = modes}, {});
    const Text want = Generate(*whole, 6, 3);
    for (const double share : {0.75, 0.4}) {  // with all gate rows in memory, and without
      store::FaultyReader* flash = nullptr;
      const auto model = LoadWithFlash(modes, bundle, share, flash);
      ASSERT_NE(model, nullptr);
      const Status placed = exec::Place(*model, {.every = 3});
      ASSERT_TRUE(placed.ok()) << placed.message();
      const Text got = Generate(*model, 6, 3);
      EXPECT_EQ(got.logits, want.logits) << modes << " " << share;
      EXPECT_GT(model->flash_counters().reads, 0);
    }
  }
}

}  // namespace
}  // namespace thermocline::gpu
