// A random model with given statistics of its feed-forward activations, and their true values.
//
// The gate of neuron i is relu(w_i . x - t_i). A token's normed input x has one constant dimension,
// which carries the threshold t_i, a part that it shares with the tokens of its topic, and a part
// of its own; the other blocks add little to the residual, so every layer sees that x. Then
//   frequency of neuron i  = P(N(0,1) > t_i), Zipf over a random order of the neurons, with mean
//                            `active`
//   reuse                  = P(active at the next token of the topic | active), by the shared part
//   co-activation          = neurons of a cluster share a part of w_i
// The head maps token n to token n + 1, so greedy decoding walks through a topic's tokens.
//
// Networks of two matrices (OPT) have no gate: w_i and t_i are the first matrix's rows. The mean of
// x that a layer norm subtracts is too close to 0 to matter, and positions add 0.
//
// The same holds for experts: the router's logit of expert e is w_e . x - t_e, where t_e is the
// threshold that it exceeds as often as it is to be chosen, and its neurons are random.
//
// With a rank, every layer has a predictor fc2 relu(fc1 x) (model/gguf/powerinfer.h) that takes
// neuron i for active, at threshold 0, as often as the gate does, but at other tokens: right for
// measuring speed, useless for quality. The rows of fc1 are random, so h = relu(fc1 x) has R nearly
// independent elements of mean 0.399 |x| and deviation 0.584 |x|. A row of fc2 is noise e with sum
// 0 and squares of sum R, plus a constant m_i: its product has mean 0.399 R m_i |x| and variance
// 0.341 R (1 + m_i^2) |x|^2. m_i puts 0 at t_i deviations above the mean, whatever |x|.
#pragma once

#include <memory>

#include "engine/base/json.h"
#include "engine/model/model_file.h"

namespace thermocline::tools {

struct SynthParams {
  int layers = 4, hidden_size = 1024, intermediate_size = 2816, heads = 16, kv_heads = 16;
  int vocab_size = 32000, context_length = 4096;
  double active = 0.1;         // mean share of active neurons per token
  double zipf = 0.8;           // exponent of the frequencies over their rank
  double reuse = 0.4;          // share of active neurons, or experts, that the next token keeps
  double co_activation = 0.3;  // correlation of two neurons of a cluster
  int predictor_rank = 0;      // R; 0 = no predictors
  int head_dim = 0;            // 0 = hidden_size / heads
  bool opt = false;            // OPT's networks of two matrices, layer norms and learned positions
  // Above 0: mixtures of experts with intermediate_size neurons each.
  int experts = 0, experts_used = 0;
  // Recurrent layers but for each `attention_every`-th; kAttention: there are none. Delta nets are
  // Qwen 3.5's family, Mamba-2 is Granite's, convolutions are LFM2's.
  model::Mixer mixer = model::Mixer::kAttention;
  int attention_every = 4, state_heads = 32, state_key_heads = 16, state_key_dim = 128,
      state_value_dim = 128;
  double routing_zipf = 0;  // exponent of the experts' frequencies over their rank; 0: uniform
  // [..][E] frequencies of experts by layer, repeated if there are fewer than layers; empty: as
  // above.
  std::vector<std::vector<double>> routing = {};
  std::uint64_t seed = 1;
};

struct SynthModel {
  std::unique_ptr<model::ModelFile> file;  // rows are computed when read
  Json truth;                              // parameters, and per layer frequencies and clusters
};

// InvalidArgument: a shape that does not fit, or unreachable statistics (with the reachable ones).
Result<SynthModel> MakeSynthModel(const SynthParams& params);

}  // namespace thermocline::tools
