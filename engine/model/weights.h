// The weights of a model, packed into panels on huge pages. Const after load.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"
#include "engine/model/model_file.h"
#include "kernels/types.h"

namespace thermocline::model {

// A matrix and what is added to its product.
struct Linear {
  kernels::PackedMatrix weight;
  const float* bias = nullptr;  // [rows] or null
};

struct NormWeights {
  const float* weight = nullptr;  // null: the layer has no such norm
  const float* bias = nullptr;    // null: none
};

struct LayerWeights {
  NormWeights attn_norm;         // [D]
  NormWeights attn_second_norm;  // [D] of attention alone, in parallel blocks
  Linear q;                      // [H*Dh, D]
  Linear k;                      // [K*Dh, D]
  Linear v;                      // [K*Dh, D]
  NormWeights q_norm;            // [Dh]
  NormWeights k_norm;            // [Dh]
  Linear attn_output;            // [D, H*Dh]
  NormWeights ffn_norm;          // [D]
  Linear gate;                   // [F, D], if the architecture is gated
  Linear up;                     // [F, D]
  Linear down;                   // [D, F]
};

struct Weights {
  kernels::PackedMatrix token_embedding;     // [V, D]
  kernels::PackedMatrix position_embedding;  // [positions + offset, D], if positions are learned
  std::vector<LayerWeights> layers;          // [L]
  NormWeights output_norm;                   // [D]
  Linear output;                             // [V, D], the embedding if tied
  base::HugeBuffer memory;                   // owns all of the above

  // Weight bytes that one decoded token reads.
  std::size_t bytes_per_token() const;
};

struct LoadWeightsOptions {
  bool verify = false;  // refuse NaN and infinite scales and floats: reads every byte once more
  // The type of the head if it is a float type in the file: kQ8_0 halves its bytes, at a loss.
  bool quantize_head = false;
  std::function<void(double)> on_progress;  // share done, from one thread at a time; may be empty
};

// Reads and packs every tensor, on `pool`'s threads. InvalidArgument or Unimplemented name the
// tensor, what was expected and what was found; DataLoss (verify) the row. Tensors of another
// architecture are refused: leaving them out would compute something else.
Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const LoadWeightsOptions& options);

}  // namespace thermocline::model
