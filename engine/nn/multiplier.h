// Products of matrices with the same activations, shared out over the threads.
#pragma once

#include <span>
#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/model/weights.h"
#include "engine/nn/product_tap.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::nn {

// out[t, r] = W[r] . x[t] + bias[r]
struct Product {
  const model::Linear* linear;
  float* out;                                    // [T, rows]
  const model::NeuronMatrix* in_rows = nullptr;  // the same matrix, if its layout is kRows

  static Product Of(const model::NeuronMatrix& matrix, float* out) {
    return {&matrix.linear, out, matrix.layout == model::Layout::kRows ? &matrix : nullptr};
  }
};

// Decode thread only. Borrows ops and pool.
class Multiplier {
 public:
  Multiplier(const kernels::OpTable& ops, base::WorkerPool& pool, std::size_t scratch_bytes);

  // All products in one parallel loop. `fold`: the second half of the tokens' outputs is added to
  // the first.
  void Multiply(std::span<const Product> products, const kernels::Activations& input, int tokens,
                bool fold = false);

  // GemmParams::prefetch_bytes of matrices in panels; kernels::kPrefetchBytes until it is called.
  void SetPrefetch(int bytes) { prefetch_bytes_ = bytes; }
  int prefetch_bytes() const { return prefetch_bytes_; }

  // Sees the products of matrices from now on, those of whole experts, too; null: nobody does.
  // Borrowed.
  void SetTap(ProductTap* tap) { tap_ = tap; }
  ProductTap* tap() const { return tap_; }

  // A thread's room for the panels of rows that are multiplied together.
  std::uint8_t* scratch(int thread) { return scratch_[thread].data(); }

 private:
  void MultiplyPanels(const Product& product, const kernels::Activations& input, int tokens,
                      bool fold, int panel_begin, int panel_end, int thread);

  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  std::vector<std::vector<std::uint8_t>> scratch_;
  int prefetch_bytes_ = kernels::kPrefetchBytes;
  ProductTap* tap_ = nullptr;
};

// Bytes for the panels of rows that are multiplied together, of the largest matrix whose rows may
// be chosen.
std::size_t PanelScratchBytes(const model::Weights& weights);
// At most, whatever the types: what a plan made before the weights are read counts with.
std::size_t PanelScratchBytesMax(const model::ModelConfig& config);

// Token `token` of `buffer` from floats to its Q8 form, where its width allows that.
void QuantizeToken(const kernels::OpTable& ops, ActivationBuffer& buffer, int token);
// Elements [at, at + n). Requires: multiples of 32.
void QuantizeRange(const kernels::OpTable& ops, ActivationBuffer& buffer, std::ptrdiff_t at, int n);

}  // namespace thermocline::nn
