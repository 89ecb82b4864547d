// The weights of a llama model, packed into panels on huge pages. Const after load.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"
#include "engine/model/model_file.h"
#include "kernels/types.h"

namespace thermocline::model {

struct LayerWeights {
  const float* attn_norm = nullptr;   // [D]
  kernels::PackedMatrix q;            // [H*Dh, D]
  kernels::PackedMatrix k;            // [K*Dh, D]
  kernels::PackedMatrix v;            // [K*Dh, D]
  kernels::PackedMatrix attn_output;  // [D, H*Dh]
  const float* ffn_norm = nullptr;    // [D]
  kernels::PackedMatrix gate;         // [F, D]
  kernels::PackedMatrix up;           // [F, D]
  kernels::PackedMatrix down;         // [D, F]
};

struct Weights {
  kernels::PackedMatrix token_embedding;  // [V, D]
  std::vector<LayerWeights> layers;       // [L]
  const float* output_norm = nullptr;     // [D]
  kernels::PackedMatrix output;           // [V, D], the embedding if tied
  base::HugeBuffer memory;                // owns all of the above

  // Weight bytes that one decoded token reads.
  std::size_t bytes_per_token() const;
};

// Reads and packs every tensor, on `pool`'s threads. `on_progress` gets the share done, from one
// thread at a time. InvalidArgument or Unimplemented name the tensor, what was expected and what
// was found.
Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const std::function<void(double)>& on_progress);

}  // namespace thermocline::model
