// Loads a model file that could be read, as a command would, and computes a few tokens.
#pragma once

#include <array>
#include <string>

#include "engine/base/log.h"
#include "engine/load/loaded_model.h"
#include "engine/model/weights/weights.h"

namespace thermocline::fuzz {

// Limits of the weights, and of all memory for loading and running.
inline constexpr std::size_t kWeightBytesMax = std::size_t{1} << 24;
inline constexpr std::int64_t kMemoryBytes = std::int64_t{512} << 20;

inline load::LoadOptions OptionsFor(const std::string& path) {
  load::LoadOptions options;
  options.model.path = path;
  options.model.threads = 1;
  options.model.context_length = 8;
  options.model.hot.device = HotDevice::kCpu;
  options.model.memory.budget_bytes = kMemoryBytes;
  options.model.ffn.modes = "dense";  // skips measurements
  options.sizes.tokens_max = 4;
  return options;
}

// Whatever the model is, it is rejected or runs. Requires: `model` was opened from `path`.
inline void LoadAndRun(const model::ModelFile& model, const std::string& path) {
  const auto sizes = model::MeasureWeights(model, {});
  if (sizes.ok() && sizes->bytes > kWeightBytesMax) return;
  base::ConfigureLog(base::LogLevel::kError, false);
  const auto loaded = load::LoadModel(OptionsFor(path));
  if (!loaded.ok()) return;
  const auto transformer = (*loaded)->MakeTransformer(4, 8);
  const auto cache = (*loaded)->MakeCache(8);
  if (!cache.ok()) return;
  const int last = (*loaded)->config.vocab_size - 1;
  const std::array<int, 4> tokens = {0, last / 2, last, 0};
  (void)transformer->Forward(tokens, **cache, exec::Transformer::Logits::kLast,
                             exec::Transformer::Step::kPrefill);
  (void)transformer->Forward(std::span(tokens).first(1), **cache, exec::Transformer::Logits::kLast);
}

}  // namespace thermocline::fuzz
