#include "engine/load/kv_advice.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/base/strings.h"

namespace thermocline::load {
namespace {

// Relative time of a multiply-add in a matrix, and in attention by type (Zen 4, AVX-512; a Xeon
// with AMX is within a fifth of them; docs/benchmarks.md).
constexpr double kMatrix = 1, kF16 = 2.7, kBytes = 0.95;
constexpr double kGainMin = 1.25;
constexpr int kLongContext = 4096;  // tokens

// Multiply-adds of a token in matrices, without the head, which a prompt has once; of a mixture's
// experts those that are used.
double MatrixOperations(const model::ModelConfig& c) {
  const model::ExpertConfig& e = c.experts;
  double idle = static_cast<double>(c.vocab_size) * c.hidden_size * (c.tie_word_embeddings ? 1 : 2);
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (e.any() && e.InLayer(layer))
      idle += 3.0 * (e.num_experts - e.num_experts_per_tok) * e.intermediate_size * c.hidden_size;
  }
  return std::max(1.0, static_cast<double>(c.num_parameters()) - idle);
}

// Multiply-adds of a token in attention, in the mean of a prompt.
double AttentionOperations(const model::ModelConfig& c, int tokens) {
  double operations = 0;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.recurrent.of(layer) != model::Mixer::kAttention) continue;
    const int window = c.WindowOf(layer);
    const double seen = window > 0 ? std::min<double>(window, tokens / 2.0) : tokens / 2.0;
    operations += 2 * seen * c.HeadsOf(layer).q();
  }
  return operations;
}

// An estimate of how many times as fast a prompt is read with q8_0 as with f16; 1 if there is no
// attention.
double LongPromptGain(const model::ModelConfig& config, int tokens) {
  const double matrices = kMatrix * MatrixOperations(config),
               attention = AttentionOperations(config, tokens);
  return (matrices + kF16 * attention) / (matrices + kBytes * attention);
}

}  // namespace

std::string KvAdvice(const model::ModelConfig& config, kernels::KvType type, int context,
                     const kernels::OpTable& ops) {
  const std::string_view isa = ops.name;
  const bool known = isa == "avx512" || isa == "amx";
  const bool fits = config.head_dim % kernels::kActivationBlock == 0;
  if (!known || type != kernels::KvType::kF16 || !fits || config.architecture->encoder ||
      context < kLongContext)
    return "";
  const double gain = LongPromptGain(config, context);
  if (gain < kGainMin) return "";
  return StrCat("a prompt of ", context, " tokens would be read about ", std::round(10 * gain) / 10,
                " times as fast with keys and values in bytes: engine.kv_type q8_0 (--kv-type)");
}

}  // namespace thermocline::load
