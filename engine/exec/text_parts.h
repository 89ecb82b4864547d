// The texts of encoders, in parts: a token of a layer sees the keys of all tokens, and nothing else
// of the others, so that a layer's keys come first and its tokens then.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/exec/attention_block.h"
#include "engine/exec/step_tokens.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/workspace.h"

namespace thermocline::exec {

// A text's progress between its parts. A layer's first pass over a text of several parts stores the
// K and V of all its tokens, the second one computes the tokens.
struct TextProgress {
  std::vector<float> residual;  // [T, D]
  int layer = 0;
  bool stored = false;  // the layer's K and V are in the cache
  int at = 0;           // tokens of this pass that are done

  bool begun() const { return layer > 0 || stored || at > 0; }
};

// Decode thread only. Borrows its parameters.
class TextParts {
 public:
  struct Params {
    const model::ModelConfig& config;
    const AttentionBlock& attention;
    nn::Workspace& workspace;
    StepTokens& step;
    // These compute for the step's tokens: the residual before the layers; a layer, from the
    // residual; its K and V alone.
    std::function<Status()> embed;
    std::function<Status(int, AttentionBlock::Keys)> compute;
    std::function<Status(int)> store;
  };
  explicit TextParts(Params params) : p_(std::move(params)) {}

  // As Transformer::ForwardText.
  Result<int> Forward(std::span<const int> text, nn::KvCache& cache, TextProgress& progress,
                      int most);

 private:
  // Computes the step's part of a layer. `whole`: its K and V come with it.
  Status Layer(TextProgress& progress, bool whole);

  const Params p_;
};

}  // namespace thermocline::exec
