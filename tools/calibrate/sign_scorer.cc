#include "tools/calibrate/sign_scorer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "engine/predictor/predictors.h"

namespace thermocline::tools {

std::vector<std::int32_t> ChooseColumns(const load::LoadedModel& model, int layer,
                                        const LayerRecording& r, double share) {
  const model::NeuronMatrix& matrix = predictor::DecidingMatrix(model.weights->layers[layer]);
  const int rows = matrix.linear.weight.rows, cols = matrix.linear.weight.cols;
  const int wanted =
      static_cast<int>(std::lround(share * cols / kernels::kSignColumns)) * kernels::kSignColumns;
  if (wanted >= cols || wanted == 0) return {};
  std::vector<double> inputs(cols), weights(inputs.size());
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    inputs[i % inputs.size()] += std::fabs(double{r.inputs[i]});
  std::vector<float> row(inputs.size());
  for (int i = 0; i < rows; i += std::max(1, rows / 512)) {  // a sample of the rows suffices
    predictor::DequantizeNeuron(matrix, i, row.data());
    for (std::size_t c = 0; c < row.size(); ++c) weights[c] += std::fabs(double{row[c]});
  }
  std::vector<std::int32_t> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto worth = [&](std::int32_t c) { return inputs[c] * weights[c]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return worth(a) > worth(b); });
  order.resize(wanted);
  std::sort(order.begin(), order.end());
  return order;
}

SignScorer::SignScorer(const load::LoadedModel& model, int layer, std::vector<std::int32_t> columns)
    : model_(model), columns_(std::move(columns)) {
  const model::NeuronMatrix& matrix = predictor::DecidingMatrix(model.weights->layers[layer]);
  rows_ = matrix.linear.weight.rows;
  all_ = matrix.linear.weight.cols;
  cols_ = columns_.empty() ? all_ : base::IntSize(columns_);
  const std::size_t words = kernels::SignWords(cols_);
  sign_.resize(words * rows_);
  magnitude_.resize(sign_.size());
  model.pool->Run(rows_, [&](int row, int) {
    std::vector<float> all(all_), values(all.size());
    predictor::DequantizeNeuron(matrix, row, all.data());
    predictor::GatherColumns(all.data(), all_, columns_, values.data());
    const std::size_t at = row * words;
    kernels::PackSigns(values.data(), cols_, sign_.data() + at, magnitude_.data() + at);
  });
}

std::vector<std::int32_t> SignScorer::Scores(const LayerRecording& r, int slices,
                                             int planes) const {
  std::vector<std::int32_t> scores(base::Area(r.tokens, rows_));
  model_.pool->Run(r.tokens, [&](int t, int) {
    std::vector<std::uint64_t> words(kernels::SignInputWords(cols_, slices));
    std::vector<float> x(all_);
    predictor::GatherColumns(r.inputs.data() + base::Area(t, all_), all_, columns_, x.data());
    model_.ops->sign_scores(
        {.planes = {rows_, cols_, sign_.data(), planes == 2 ? magnitude_.data() : nullptr},
         .input = kernels::PackSignInput(x.data(), cols_, slices, words.data()),
         .row_begin = 0,
         .row_end = rows_,
         .scores = scores.data() + base::Area(t, rows_)});
  });
  return scores;
}

}  // namespace thermocline::tools
