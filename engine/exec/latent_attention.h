// The projections of latent attention, before and after the attention itself, which then has one kv
// head of r + c dimensions (model/latent_attention.h).
#pragma once

#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class LatentAttention {
 public:
  struct Params {
    const model::ModelConfig& config;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    int tokens_max;  // T of one call
  };
  // Requires: config.latent.any().
  explicit LatentAttention(const Params& params);
  // Bytes that a construction with these sizes allocates; 0 if attention is not latent.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);

  // q [T, H, r + c], k [T, r + c], v [T, r + c], all without rotation; v is 0 in the dimensions
  // that rotate in k.
  void Project(const model::LayerWeights& layer, const nn::ActivationBuffer& hidden, int tokens,
               float* q, float* k, float* v);
  // out [T, D] of the heads' output, [T, H, r + c].
  void Output(const model::LayerWeights& layer, const float* seen, int tokens, float* out);

 private:
  void ProjectQueries(const model::LayerWeights& layer, const nn::ActivationBuffer& hidden,
                      int tokens, float* q);
  // Multiplies, for each head, its rows of `all` and its T tokens in `input`, [H, T, cols]. Results
  // go to out + h `out_head`, with tokens `out_token` apart.
  void MultiplyHeads(const kernels::PackedMatrix& all, const nn::ActivationBuffer& input,
                     int tokens, float* out, int out_head, int out_token);
  // Calls body(head, token) for all, in parallel over the heads.
  template <typename Body>
  void ForHeads(int tokens, const Body& body) {
    pool_.Run(heads_, [&](int head, int) {
      for (int t = 0; t < tokens; ++t) body(head, t);
    });
  }

  const model::ModelConfig& config_;
  const model::LatentConfig& latent_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  const int heads_;
  std::vector<float> kv_;             // [T, c + r]
  nn::ActivationBuffer q_a_;          // [T, q_lora_rank]
  std::vector<float> plain_;          // [T, H, n + r]
  nn::ActivationBuffer nope_, seen_;  // [H, T, n], [H, T, c]
  nn::ActivationBuffer values_;       // [T, H, v]
};

}  // namespace thermocline::exec
