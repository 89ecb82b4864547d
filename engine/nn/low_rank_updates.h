// The changes that adapters make to products: out[t] += s B (A x[t])   (model/adapter.h).
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "kernels/op_table.h"

namespace thermocline::nn {

struct Product;

// The factors of one adapter's change of a matrix, of float types.
struct UpdateFactors {
  int adapter = 0;
  kernels::PackedMatrix a = {};  // [r, cols]
  kernels::PackedMatrix b = {};  // [rows, r]
  float scale = 1;
};
// By matrix, the first adapter first.
using UpdateTable = std::unordered_map<const model::Linear*, std::vector<UpdateFactors>>;

// Decode thread only. Borrows its parameters; allocates nothing after construction.
class LowRankUpdates {
 public:
  // Products that share one input, at most.
  static constexpr int kProductsMax = 8;

  LowRankUpdates(const UpdateTable& table, const kernels::OpTable& ops, base::WorkerPool& pool,
                 int tokens_max);

  // Sets the factor of each adapter from now on, 0 = not applied; empty: none is.
  void SetScales(std::span<const float> scales) { scales_.assign(scales.begin(), scales.end()); }
  // The changes of products' matrices, in two phases: Begin returns the number of items of the
  // first, which need only the input and may run in any order, on any thread, beside the products;
  // End, behind both, adds the second to the outputs. Each token's are computed as if it were
  // alone. Requires for Begin: at most kProductsMax products, which stay until End.
  int Begin(std::span<const Product> products, const kernels::Activations& input, int tokens);
  void Reduce(int item);
  void End();

 private:
  struct Item {
    const UpdateFactors* factors;
    float scale;
    float* reduced;  // [T, r] s A x
  };
  // One product's items.
  struct Change {
    const Product* product;
    int rows;  // of its matrix
    int first, count;
  };
  static int RankMax(const UpdateTable& table);
  void Expand(const Change& change, int panel_begin, int panels, float* scratch);
  void ExpandRange(int range, int thread);

  const UpdateTable& table_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  std::vector<float> scales_;  // [adapters]
  std::vector<float> reduced_;
  std::vector<std::vector<float>> scratch_;  // by thread
  std::vector<Item> items_;
  std::vector<Change> changes_;
  kernels::Activations input_;  // of this step
  int tokens_ = 0, slices_ = 1;
};

}  // namespace thermocline::nn
