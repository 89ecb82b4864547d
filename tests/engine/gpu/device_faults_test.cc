// An emulated device that fails while a model runs on it: the sequence may end, and the next one is
// unaffected.
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

// A fault at any call of a step: the step fails with the device's text, the sequence cannot
// continue, and a new one has the same bits as before.
TEST_F(OnDevice, AFaultEndsTheSequenceAndTheNextOneIsAsBefore) {
  for (const exec::Where& where :
       {exec::Where{.every = 2}, exec::Where{.home_layers = 3, .every = 2},
        exec::Where{.home_layers = 0, .every = 2}}) {
    for (const int after : {1, 9}) {
      const auto model = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, where);
      const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
      const auto cache = *model->MakeCache(exec::kDeviceContext);
      const auto want = Decode(*model, *transformer, *cache, 3);
      ASSERT_TRUE(want.ok());
      cuda_emulated::Inject({.after = after, .error = cudaErrorUnknown, .sticky = true});
      const auto faulty = Decode(*model, *transformer, *cache, 9);
      EXPECT_EQ(faulty.status().code(), StatusCode::kUnavailable);
      EXPECT_NE(faulty.status().message().find("unrecognized error code"), std::string::npos)
          << faulty.status().message();
      EXPECT_TRUE(faulty.kv_cache_lost()) << where.home_layers << " " << after;
      EXPECT_FALSE(model->device_forward->dead());
      const auto lost = Decode(*model, *transformer, *cache, 1);
      EXPECT_EQ(lost.status().code(), StatusCode::kUnavailable);
      EXPECT_TRUE(lost.kv_cache_lost());
      EXPECT_NE(lost.status().message().find("begin the sequence anew"), std::string::npos);
      cache->Clear();
      const auto again = Decode(*model, *transformer, *cache, 3);
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(*again, *want);
    }
  }
}

TEST_F(OnDevice, ASecondFaultIsTheEnd) {
  const auto model = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.every = 2});
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  for (int fault = 0; fault < 2; ++fault) {
    ASSERT_TRUE(Decode(*model, *transformer, *cache, 1).ok());
    cuda_emulated::Inject({.after = 2, .error = cudaErrorUnknown, .sticky = true});
    EXPECT_FALSE(Decode(*model, *transformer, *cache, 2).ok());
    cache->Clear();
  }
  EXPECT_TRUE(model->device_forward->dead());
  const auto refused = Decode(*model, *transformer, *cache, 1);
  EXPECT_TRUE(refused.kv_cache_lost());
  EXPECT_NE(refused.status().message().find("restart"), std::string::npos)
      << refused.status().message();
}

// After a fault in a kernel the device's state is lost: no rebuild is tried, and the process must
// end.
TEST_F(OnDevice, AFaultOfAKernelIsTheEndAtOnce) {
  const auto model = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.every = 2});
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  cuda_emulated::Inject({.after = 2, .error = cudaErrorIllegalAddress, .sticky = true});
  const auto faulty = Decode(*model, *transformer, *cache, 2);
  EXPECT_NE(faulty.status().message().find("illegal memory access"), std::string::npos)
      << faulty.status().message();
  EXPECT_TRUE(model->device_forward->dead());
  cache->Clear();
  const auto refused = Decode(*model, *transformer, *cache, 1);
  EXPECT_NE(refused.status().message().find("restart the program"), std::string::npos)
      << refused.status().message();
}

// In prefill the launches of a layer that waits for the CPU are already on the stream.
TEST_F(OnDevice, AFaultInAPromptDoesNotHang) {
  for (const int after : {20, 60, 100}) {
    const auto model = exec::LoadPlaced({.path = exec::kTidepool, .modes = "exact"}, {.every = 2});
    const auto transformer = model->MakeTransformer(24, exec::kDeviceContext);
    const auto cache = *model->MakeCache(exec::kDeviceContext);
    const std::vector<int> prompt = exec::SomeTokens(20, model->config.vocab_size);
    const auto prefill = [&] {
      return transformer->Forward(prompt, *cache, Logits::kLast, exec::Transformer::Step::kPrefill)
          .error();
    };
    cuda_emulated::Inject({.after = after, .error = cudaErrorUnknown, .sticky = true});
    const exec::StepError failed = prefill(), again = prefill();
    EXPECT_EQ(failed.status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(failed.kv_cache_lost);
    EXPECT_TRUE(again.status.ok()) << again.status.message();
    EXPECT_FALSE(again.kv_cache_lost);
  }
}

// The CPU's part of a layer fails while the device waits for it: the device stays usable.
TEST_F(OnDevice, AFlashErrorLeavesTheDevice) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  for (const int home : {0, 6}) {
    store::FaultyReader* flash = nullptr;
    const auto model = LoadWithFlash("exact", bundle, 0.6, flash);
    ASSERT_NE(model, nullptr);
    ASSERT_TRUE(exec::Place(*model, {.home_layers = home, .every = 3}).ok());
    const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
    const auto cache = *model->MakeCache(exec::kDeviceContext);
    const auto want = Decode(*model, *transformer, *cache, 3);
    ASSERT_TRUE(want.ok());
    flash->Inject({.kind = store::Fault::Kind::kError});
    cache->Clear();
    const auto failed = Decode(*model, *transformer, *cache, 3);
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.status().message().find("layer "), std::string::npos)
        << failed.status().message();
    EXPECT_FALSE(failed.kv_cache_lost());
    EXPECT_FALSE(model->device_forward->failed());
    flash->Clear();
    cache->Clear();
    const auto again = Decode(*model, *transformer, *cache, 3);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, *want);
  }
}

}  // namespace
}  // namespace thermocline::gpu
