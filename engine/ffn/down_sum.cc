#include "engine/ffn/down_sum.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

// Columns of a work item of the sum over down rows: few enough that the live rows of a chunk and of
// the next one stay in the second-level cache.
constexpr int kColumnsMax = 1024, kColumnsDense = 512;

std::size_t ScratchBytes(const model::ModelConfig& config) {
  return kernels::SumScratchBytes(std::min(config.hidden_size, kColumnsMax + kernels::kSumColumns));
}

}  // namespace

int DownSum::ColumnsPerItem(int cols, int threads, bool dense) {
  const int even = cols / (2 * threads) / kernels::kSumColumns * kernels::kSumColumns;
  return std::clamp(even, kernels::kSumColumns, dense ? kColumnsDense : kColumnsMax);
}

DownSum::DownSum(const FfnContext& context)
    : context_(context),
      scratch_(context.pool.threads(), std::vector<std::uint8_t>(ScratchBytes(context.config))) {}

std::size_t DownSum::Bytes(const FfnSizes& sizes) {
  return sizes.threads * ScratchBytes(sizes.config);
}

void DownSum::SumRows(int layer, int tokens, const FoundNeurons& found, float* out, bool add_bias) {
  Run({layer, tokens, found, out, nullptr, add_bias ? context_.layer(layer).down.bias : nullptr});
}

void DownSum::SumSharedRows(int layer, int tokens, const FoundNeurons& found,
                            const kernels::SharedSum& part) {
  Run({layer, tokens, found, nullptr, &part, nullptr});
}

void DownSum::Run(const Sum& sum) {
  const int count = base::IntSize(sum.found.ids);
  const bool dense = 3 * count > context_.layer(sum.layer).down_rows.rows;
  ForColumns(dense, [&](int begin, int end, int thread) { Run(sum, begin, end, thread); });
}

void DownSum::Run(const Sum& sum, int begin, int end, int thread) {
  const int d = context_.config.hidden_size;
  context_.ops.sum_rows({.weights = context_.layer(sum.layer).down_rows,
                         .ids = sum.found.ids.data(),
                         .count = base::IntSize(sum.found.ids),
                         .h = sum.found.h,
                         .h_stride = sum.found.stride,
                         .tokens = sum.tokens,
                         .skip_zeros = sum.found.skip_zeros,
                         .col_begin = begin,
                         .col_end = end,
                         .out = sum.out,
                         .out_stride = d,
                         .scratch = scratch_[thread].data(),
                         .shared = sum.shared});
  for (int t = 0; sum.bias != nullptr && t < sum.tokens; ++t)
    context_.ops.add(sum.out + nn::Offset(t, d) + begin, sum.bias + begin, end - begin);
}

void DownSum::MultiplyColumns(int layer, int tokens, const FoundNeurons& found,
                              nn::ActivationBuffer& h, float* out) {
  const int f = context_.config.NetworkSizeOf(layer);
  h.cols = f;
  for (int t = 0; found.h != h.x.data() && t < tokens; ++t) {
    float* row = h.x.data() + nn::Offset(t, f);
    std::fill_n(row, f, 0.0F);
    for (int k = 0; k < base::IntSize(found.ids); ++k)
      row[found.ids[k]] = found.h[nn::Offset(t, found.stride) + k];
  }
  context_.pool.Run(tokens, [&](int t, int) { nn::QuantizeToken(context_.ops, h, t); });
  const std::array output = {nn::Product{&context_.layer(layer).down, out}};
  context_.multiplier.Multiply(output, h.view(), tokens);
}

}  // namespace thermocline::ffn
