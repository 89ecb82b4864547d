// The forward pass of a llama model: T tokens in, logits out.
//
//   x = embed(tokens)
//   for each layer:  x += Wo attention(rope(Wq n1), rope(Wk n1), Wv n1)   n1 = norm(x)
//                    x += Wdown (act(Wgate n2) * Wup n2)                  n2 = norm(x)
//   logits = Whead norm(x)
// Every token's arithmetic is the same whether it comes alone or in a batch, at any number of
// threads.
#pragma once

#include <span>

#include "engine/base/worker_pool.h"
#include "engine/exec/kv_cache.h"
#include "engine/exec/workspace.h"
#include "engine/model/weights.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows config, weights, ops and pool; owns its workspace. Allocates nothing
// after construction.
class Transformer {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    int tokens_max = 64;      // T of one call
    bool all_logits = false;  // Logits::kAll may be asked for
    int context_length = 0;   // tokens a KvCache may hold
  };
  explicit Transformer(const Params& params);

  enum class Logits { kNone, kLast, kAll };
  // Appends `tokens` to `cache` and computes the logits asked for.
  // Returns [1, V] (kLast), [T, V] (kAll, if all_logits) or nothing; valid until the next call.
  // Requires: 1 <= T <= tokens_max; ids in [0, V); room in the cache.
  std::span<const float> Forward(std::span<const int> tokens, KvCache& cache, Logits wanted);

  int tokens_max() const { return ws_.tokens_max; }
  const model::ModelConfig& config() const { return config_; }

 private:
  struct Product {
    const kernels::PackedMatrix* weights;
    float* out;
  };

  void Embed(std::span<const int> tokens);
  void Attention(int layer, int tokens, KvCache& cache);
  void StoreKeysAndValues(int layer, int token, int position, KvCache& cache);
  void FeedForward(int layer, int tokens);
  // Logits of `token` into row `row` of ws_.logits.
  void Head(int token, int row);
  // out[t] = norm(residual[t]) * weight into ws_.hidden, and its Q8 form.
  void Norm(const float* weight, int first_token, int tokens);
  void Quantize(ActivationBuffer& buffer, int tokens);
  // Every product of the same activations in one parallel loop.
  void Multiply(std::span<const Product> products, const ActivationBuffer& input, int tokens);
  void AddToResidual(int tokens);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  Workspace ws_;
};

}  // namespace thermocline::exec
