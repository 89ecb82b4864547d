// The parts that Gemma 3n adds to a transformer, as data.
//
// AltUp: a token has N streams s_0 .. s_{N-1} of D numbers. A layer predicts all of them from each
// other, computes s_0 alone, and corrects the others by the change of s_0. Laurel: a low-rank
// product beside attention. Per-layer embeddings: each layer has a small embedding of the token,
// which it adds to all streams but the first. Their tables are most of the file, and a token reads
// one row, so they stay in the file.
//   m(x) = tanh(router RMS(x) / D)
//   P_i  = s_i + sum_j C_ij s_j,  C = predict m(s_0)
//   h    = (P_0 + norm(attention(a)) + a + norm(laurel a)) / sqrt 2,   a = norm(P_0)
//   f    = h + norm(ffn(norm(h)))
//   s_i  = P_i + (1 + (correct m(f))_i) (f - P_0)
//   s_i += norm(proj(act(gate(scale * s_0)) * e)),  i > 0,  e the layer's embedding of the token
// The gates of a layer with a cut c become max(0, gate - (mean + c deviation)) before their
// activation: with Gaussian gates a share of 1 - Phi(c) of the neurons remains.
// Source: Baykal et al. 2023 (AltUp); transformers' modeling_gemma3n.
#pragma once

#include <vector>

#include "engine/base/status.h"

namespace thermocline::model {

struct AltUpConfig {
  int streams = 0;           // N; 0: one stream per token, as in other families
  int laurel_rank = 0;       // of laurel's product
  int embedding_dim = 0;     // E of a layer's own embedding of a token
  std::vector<double> cuts;  // [L] c, 0: the layer's gates are not cut; empty: none are
  int shared_kv_layers = 0;  // this many of the last layers reuse the KV cache of earlier layers

  bool any() const { return streams > 0; }
  double CutOf(int layer) const { return cuts.empty() ? 0 : cuts[layer]; }
};

// A bound on what a file may say before its number of layers is checked.
inline constexpr int kAltUpLayersMax = 1024;

// InvalidArgument: fewer than two streams, by the name of the file's field.
Status CheckAltUpStreams(const char* name, int streams);
// The cut c behind which a share of Gaussian gates is lower: the inverse of the normal
// distribution. 0 if no gate is cut.
double GateCutOfShare(double share);
// The cuts of a file that gives none. [L], at most kAltUpLayersMax.
std::vector<double> DefaultGateCuts(int layers);

}  // namespace thermocline::model
