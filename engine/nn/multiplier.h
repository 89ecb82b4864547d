// Products of matrices with the same activations, distributed over the threads.
#pragma once

#include <span>
#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/low_rank_updates.h"
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

  // Computes all products in one parallel loop. `fold`: adds the second half of the tokens' outputs
  // to the first.
  void Multiply(std::span<const Product> products, const kernels::Activations& input, int tokens,
                bool fold = false);

  // Sets GemmParams::prefetch_bytes of matrices in panels; the default is kernels::kPrefetchBytes.
  void SetPrefetch(int bytes) { prefetch_bytes_ = bytes; }
  int prefetch_bytes() const { return prefetch_bytes_; }

  // Sets a tap that sees the products of matrices from now on, including those of whole experts;
  // null: none. Borrowed.
  void SetTap(ProductTap* tap) { tap_ = tap; }
  ProductTap* tap() const { return tap_; }

  // Sets the changes that adapters make to products from now on; null: none. Borrowed.
  void SetUpdates(LowRankUpdates* updates) { updates_ = updates; }
  // Adds them to a product that was computed elsewhere.
  void Update(const Product& product, const kernels::Activations& input, int tokens) {
    if (updates_ == nullptr) return;
    const int items = updates_->Begin({&product, 1}, input, tokens);
    if (items == 0) return;
    pool_.Run(items, [this](int item, int) { updates_->Reduce(item); });
    updates_->End();
  }

  // A thread's scratch memory for panels of rows that are multiplied together.
  std::uint8_t* scratch(int thread) { return scratch_[thread].data(); }

 private:
  void MultiplyPanels(const Product& product, const kernels::Activations& input, int tokens,
                      bool fold, int panel_begin, int panel_end, int thread);

  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  std::vector<std::vector<std::uint8_t>> scratch_;
  int prefetch_bytes_ = kernels::kPrefetchBytes;
  ProductTap* tap_ = nullptr;
  LowRankUpdates* updates_ = nullptr;
};

// Scratch bytes for the panels of rows that are multiplied together, for the largest matrix whose
// rows may be selected.
std::size_t PanelScratchBytes(const model::Weights& weights);
// The maximum for any types, for plans made before the weights are read.
std::size_t PanelScratchBytesMax(const model::ModelConfig& config);

// Converts token `token` of `buffer` from floats to Q8, if its width allows that.
void QuantizeToken(const kernels::OpTable& ops, ActivationBuffer& buffer, int token);
// Converts elements [at, at + n). Requires: multiples of 32.
void QuantizeRange(const kernels::OpTable& ops, ActivationBuffer& buffer, std::ptrdiff_t at, int n);

}  // namespace thermocline::nn
