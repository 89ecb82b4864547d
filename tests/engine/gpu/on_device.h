// Shared parts of tests with a model on an emulated device: texts, models with a part on flash,
// tolerances.
#pragma once

#include <chrono>
#include <cmath>

#include "tests/cuda_emulated/emulator.h"
#include "tests/engine/exec/device_models.h"
#include "tests/engine/exec/flash_models.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::gpu {

// Tolerances of logits up to 25. Float weights: measured 3e-5. Quantized ones: a difference of 1e-6
// in attention sometimes flips an activation's rounding to eight bits, as between two of the CPU's
// tables (reference and AVX2: 0.046; measured here 0.07). If neurons are chosen by such
// activations, a flip may add or drop one, and these predictors are random.
inline constexpr float kFloatTolerance = 1e-4F, kQuantizedTolerance = 0.15F,
                       kChosenTolerance = 0.6F;

class OnDevice : public exec::FfnModels {
 protected:
  using Logits = exec::Transformer::Logits;

  void SetUp() override {
    exec::FfnModels::SetUp();
    begin_ = std::chrono::steady_clock::now();
  }
  void TearDown() override {
    cuda_emulated::Inject({});
    static_cast<void>(kernels::EmulatedOps().runtime.reset());
    exec::FfnModels::TearDown();
    std::printf("  took %.1f s\n",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
  }

  // A prompt of `prompt` tokens, then greedy tokens; the logits of all of them.
  struct Text {
    std::vector<int> tokens;
    std::vector<float> logits;
  };
  static Text Generate(const load::LoadedModel& model, int prompt, int count, int batch = 16) {
    const auto transformer = model.MakeTransformer(batch, exec::kDeviceContext, batch);
    const auto cache = *model.MakeCache(exec::kDeviceContext);
    const std::vector<int> input = exec::SomeTokens(prompt, model.config.vocab_size);
    Text text;
    std::span<const float> logits;
    const auto keep = [&](exec::Transformer::Step step, std::span<const int> tokens) {
      const auto computed = transformer->Forward(tokens, *cache, Logits::kLast, step);
      EXPECT_TRUE(computed.ok()) << computed.status().message();
      if (!computed.ok()) return false;
      logits = *computed;
      text.logits.insert(text.logits.end(), logits.begin(), logits.end());
      return true;
    };
    for (int at = 0; at < prompt; at += batch) {
      if (!keep(exec::Transformer::Step::kPrefill,
                std::span(input).subspan(static_cast<std::size_t>(at),
                                         static_cast<std::size_t>(std::min(batch, prompt - at)))))
        return text;
    }
    for (int i = 0; i < count; ++i) {
      const int next =
          static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      text.tokens.push_back(next);
      if (!keep(exec::Transformer::Step::kDecode, std::span(&text.tokens.back(), 1))) break;
    }
    return text;
  }

  // Decodes a sequence's first `count` tokens one by one; returns the logits of the last, or the
  // error.
  static exec::StepResult<std::vector<float>> Decode(const load::LoadedModel& model,
                                                     exec::Transformer& transformer,
                                                     nn::KvCache& cache, int count) {
    std::vector<float> logits;
    for (const int token : exec::SomeTokens(count, model.config.vocab_size)) {
      const auto out = transformer.Forward(std::span(&token, 1), cache, Logits::kLast);
      if (!out.ok()) return out.error();
      logits.assign(out->begin(), out->end());
    }
    return logits;
  }

  static std::unique_ptr<load::LoadedModel> LoadWithFlash(const std::string& modes,
                                                          const std::string& bundle, double share,
                                                          store::FaultyReader*& flash) {
    load::LoadOptions options;
    options.model.path = exec::kTidepool;
    options.model.threads = 1;
    options.model.kv_type = kernels::KvType::kF32;
    options.model.ffn.modes = modes;
    options.model.memory = {.ffn_share = share, .bundle = bundle};
    options.open_reader = [&flash](const std::string& path, const store::ReaderOptions& reading)
        -> Result<std::unique_ptr<store::BlockReader>> {
      ASSIGN_OR_RETURN(auto reader, store::OpenBlockReader(path, reading));
      auto faulty = std::make_unique<store::FaultyReader>(std::move(reader));
      flash = faulty.get();
      return std::unique_ptr<store::BlockReader>(std::move(faulty));
    };
    auto model = load::LoadModel(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *std::move(model) : nullptr;
  }

  static float Largest(const std::vector<float>& values) {
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::fabs(v));
    return largest;
  }
  static void ExpectNear(const std::vector<float>& got, const std::vector<float>& want,
                         float tolerance, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float error = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      error = std::max(error, std::fabs(got[i] - want[i]));
    std::printf("  %s: largest error %.2g of %.3g\n", what.c_str(), static_cast<double>(error),
                static_cast<double>(Largest(want)));
    EXPECT_LE(error, tolerance) << what;
  }

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace thermocline::gpu
