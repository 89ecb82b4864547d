// The second half of a network: y = sum of h_i d_i over the live neurons.
#pragma once

#include <algorithm>

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/live_neurons.h"

namespace thermocline::ffn {

// Decode thread only. Allocates nothing after construction.
class DownSum {
 public:
  explicit DownSum(const FfnContext& context);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  // out [T, D], over down rows. Requires: the layer has down_rows.
  void SumRows(int layer, int tokens, const FoundNeurons& found, float* out, bool add_bias);
  // Calls body(first column, end, thread) for ranges of the D output columns, in parallel. dense:
  // the sums use many of a layer's rows.
  template <typename Body>
  void ForColumns(bool dense, const Body& body) {
    const int d = context_.config.hidden_size;
    const int columns = ColumnsPerItem(d, context_.pool.threads(), dense);
    context_.pool.Run((d + columns - 1) / columns, [&](int item, int thread) {
      body(item * columns, std::min(d, (item + 1) * columns), thread);
    });
  }
  // Computes columns [begin, end) of SumRows, bias added, on the calling thread.
  void SumColumns(int layer, int tokens, const FoundNeurons& found, int begin, int end, float* out,
                  int thread) {
    Run({layer, tokens, found, out, nullptr, context_.layer(layer).down.bias}, begin, end, thread);
  }
  // This partition's part of a shared sum (kernels/shared_sum.h). Requires: down_rows of a
  // quantised type.
  void SumSharedRows(int layer, int tokens, const FoundNeurons& found,
                     const kernels::SharedSum& part);
  // out [T, D], by the product with down's columns. h [T, F]: a buffer for all neurons' h, which
  // may already contain those of `found`. Requires: the layer has no down_rows; no members.
  void MultiplyColumns(int layer, int tokens, const FoundNeurons& found, nn::ActivationBuffer& h,
                       float* out);

 private:
  struct Sum {
    int layer, tokens;
    const FoundNeurons& found;
    float* out;                        // or
    const kernels::SharedSum* shared;  // not null
    const float* bias;                 // [D] or null
  };
  static int ColumnsPerItem(int cols, int threads, bool dense);
  void Run(const Sum& sum);
  void Run(const Sum& sum, int begin, int end, int thread);

  const FfnContext context_;
  std::vector<std::vector<std::uint8_t>> scratch_;  // by thread: of SumRows
};

}  // namespace thermocline::ffn
