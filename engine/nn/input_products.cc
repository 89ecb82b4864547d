#include "engine/nn/input_products.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::nn {
namespace {

constexpr int kScaled = kernels::kActivationBlock;  // outputs with a common scale

}  // namespace

InputProducts::InputProducts(const Params& p)
    : ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      ids_(p.cols_max),
      values_(p.cols_max),
      limits_(p.rows_max / kScaled + 1),
      joined_(p.rows_max),
      parts_(p.pool.threads()) {
  masked_.Resize(p.tokens_max, p.cols_max);
  for (Part& part : parts_) {
    part.high.resize(p.rows_max);
    part.low.resize(p.rows_max);
    part.scratch.resize(kernels::SumInputsScratchBytes(p.rows_max));
  }
}

std::size_t InputProducts::Bytes(int tokens_max, int cols_max, int rows_max, int threads) {
  const std::size_t part =
      base::Area(rows_max, 2) * sizeof(std::int32_t) + kernels::SumInputsScratchBytes(rows_max);
  return base::Area(cols_max, 1) * (sizeof(int) + sizeof(float)) +
         base::Area(rows_max + rows_max / kScaled + 1, 1) * sizeof(float) + threads * part +
         ActivationBuffer::Bytes(tokens_max, cols_max);
}

InputCounts InputProducts::Multiply(std::span<const Product> products,
                                    const model::InputMatrix* copy, const InputRule& rule,
                                    const float* x, int tokens) {
  const int cols = products.front().linear->weight.cols;
  InputCounts counts{.tokens = tokens, .all = std::int64_t{cols} * tokens};
  std::int64_t outputs = 0, bytes = 0;
  for (const Product& product : products) {
    outputs += product.linear->weight.rows;
    bytes += product.linear->weight.bytes();
  }
  for (int t = 0; t < tokens; ++t) {
    counts.missed += Keep(rule, x + Offset(t, cols), cols, Offset(t, cols));
    counts.kept += base::IntSize(ids_);
    if (copy == nullptr) continue;
    Sum(*copy);
    Separate(products, t);
  }
  if (copy == nullptr) MultiplyMasked(products, cols, tokens);
  counts.steps = 1;
  counts.operations = outputs * (copy == nullptr ? counts.all : counts.kept);
  if (copy != nullptr)
    bytes = counts.kept *
            static_cast<std::int64_t>(kernels::RowBytes(copy->rows.type, copy->rows.cols));
  counts.bytes = bytes;
  return counts;
}

double InputProducts::Keep(const InputRule& rule, const float* x, int cols, std::ptrdiff_t at) {
  const bool weighted = !rule.weights.empty();
  float* const masked = masked_.x.data() + at;
  double all = 0, kept = 0;
  for (int j = 0; j < cols; ++j) {
    const float size = weighted ? std::fabs(x[j]) * rule.weights[j] : std::fabs(x[j]);
    const bool counts = size >= rule.threshold;
    masked[j] = counts ? x[j] : 0.0F;
    all += size * size;
    kept += counts ? size * size : 0.0F;
  }
  ids_.resize(cols);
  values_.resize(cols);
  int count = 0;
  for (int j = 0; j < cols; ++j) {
    ids_[count] = j;
    values_[count] = masked[j];
    count += masked[j] != 0 ? 1 : 0;
  }
  ids_.resize(count);
  values_.resize(count);
  return all > 0 ? 1 - kept / all : 0;
}

void InputProducts::MultiplyMasked(std::span<const Product> products, int cols, int tokens) {
  masked_.cols = cols;
  pool_.Run(tokens, [this](int t, int) { QuantizeToken(ops_, masked_, t); });
  multiplier_.Multiply(products, masked_.view(), tokens);
}

void InputProducts::Sum(const model::InputMatrix& copy) {
  const int count = base::IntSize(ids_), parts = base::IntSize(parts_);
  float largest = 0;
  for (const float value : values_) largest = std::max(largest, std::fabs(value));
  for (std::size_t b = 0; b < copy.scales_max.size(); ++b)
    limits_[b] = largest * copy.scales_max[b];
  pool_.Run(parts, [&](int part, int) {
    const int begin = count * part / parts, end = count * (part + 1) / parts;
    ops_.sum_inputs({.weights = copy.rows,
                     .ids = ids_.data() + begin,
                     .x = values_.data() + begin,
                     .count = end - begin,
                     .limits = limits_.data(),
                     .high = parts_[part].high.data(),
                     .low = parts_[part].low.data(),
                     .scratch = parts_[part].scratch.data()});
  });
  FinishSum(copy);
}

void InputProducts::FinishSum(const model::InputMatrix& copy) {
  const int cols = copy.rows.cols, threads = pool_.threads();
  const int columns = (cols / threads + kScaled - 1) / kScaled * kScaled;
  pool_.Run(threads, [&](int item, int) {
    const int begin = std::min(cols, item * columns), end = std::min(cols, begin + columns);
    Part& first = parts_.front();
    for (std::size_t part = 1; part < parts_.size(); ++part) {
      for (int c = begin; c < end; ++c) {
        first.high[c] += parts_[part].high[c];
        first.low[c] += parts_[part].low[c];
      }
    }
    if (begin == end) return;
    ops_.finish_sum({.runs = 1,
                     .cols = cols,
                     .limits = limits_.data(),
                     .num_parts = 1,
                     .parts = {{first.high.data(), first.low.data(), nullptr}, {}},
                     .col_begin = begin,
                     .col_end = end,
                     .out = joined_.data()});
  });
}

void InputProducts::Separate(std::span<const Product> products, int token) {
  const float* from = joined_.data();
  for (const Product& product : products) {
    const int rows = product.linear->weight.rows;
    float* to = product.out + Offset(token, rows);
    std::copy_n(from, rows, to);
    if (product.linear->bias != nullptr) ops_.add(to, product.linear->bias, rows);
    from += rows;
  }
}

}  // namespace thermocline::nn
