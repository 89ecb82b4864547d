#include "engine/load/synthetic_network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/bytes.h"
#include "kernels/quantize.h"

namespace thermocline::load {
namespace {

using kernels::DType;

constexpr int kDistinctRows = 64;  // the other rows repeat these in random order

std::size_t Area(std::size_t a, int b) { return a * b; }

// Fills rows of a matrix, or panels, by repeating a few random rows.
class Filler {
 public:
  Filler(std::uint8_t* begin, int cols) : next_(begin), cols_(cols) {}

  const std::uint8_t* Rows(DType type, int rows) {
    const std::vector<std::uint8_t> some = SomeRows(type);
    std::vector<std::uint8_t> packed(some.size());
    const std::size_t row_bytes = kernels::RowBytes(type, cols_);
    for (int r = 0; r < kDistinctRows; r += kernels::kPanelRows)
      kernels::PackRows(type, some.data() + Area(row_bytes, r), kernels::kPanelRows, cols_,
                        packed.data() + Area(row_bytes, r));
    // The rows are in random order, because the pattern of live neurons must not be regular.
    std::uint8_t* begin = next_;
    for (int r = 0; r < rows; ++r)
      std::memcpy(begin + Area(row_bytes, r),
                  packed.data() + Area(row_bytes, static_cast<int>(random_() % kDistinctRows)),
                  row_bytes);
    next_ += (Area(row_bytes, rows) + 63) / 64 * 64;
    return begin;
  }

  const std::uint8_t* Panels(DType type, int rows) {
    const std::vector<std::uint8_t> some = SomeRows(type);
    std::vector<std::uint8_t> packed(some.size());
    const std::size_t row_bytes = kernels::RowBytes(type, cols_);
    for (int r = 0; r < kDistinctRows; r += kernels::kPanelRows)
      kernels::PackPanel(type, some.data() + Area(row_bytes, r), kernels::kPanelRows, cols_,
                         packed.data() + Area(row_bytes, r));
    return Repeat(packed, kernels::PackedBytes(type, rows, cols_));
  }

  std::uint64_t* Words(std::size_t count) {
    auto* words = reinterpret_cast<std::uint64_t*>(next_);
    for (std::size_t i = 0; i < count; ++i)
      words[i] = static_cast<std::uint64_t>(random_()) << 32 | random_();
    next_ += count * 8;
    return words;
  }

 private:
  std::vector<std::uint8_t> SomeRows(DType type) {
    std::normal_distribution<float> normal(0, 1.0F / std::sqrt(static_cast<float>(cols_)));
    const std::size_t row_bytes = kernels::RowBytes(type, cols_);
    std::vector<std::uint8_t> rows(row_bytes * kDistinctRows);
    std::vector<float> values(cols_);
    for (int r = 0; r < kDistinctRows; ++r) {
      for (float& value : values) value = normal(random_);
      kernels::QuantizeRow(type, values.data(), cols_, rows.data() + Area(row_bytes, r));
    }
    return rows;
  }

  const std::uint8_t* Repeat(const std::vector<std::uint8_t>& what, std::size_t bytes) {
    std::uint8_t* begin = next_;
    for (std::size_t at = 0; at < bytes; at += what.size())
      std::memcpy(begin + at, what.data(), std::min(what.size(), bytes - at));
    next_ += (bytes + 63) / 64 * 64;
    return begin;
  }

  std::uint8_t* next_;
  const int cols_;
  std::mt19937 random_{17};
};

}  // namespace

Result<std::unique_ptr<SyntheticNetwork>> MakeSyntheticNetwork(const model::ModelConfig& model,
                                                               const NetworkTypes& types,
                                                               std::size_t bytes) {
  auto out = std::make_unique<SyntheticNetwork>();
  const int f = model.intermediate_size, d = model.hidden_size;
  const bool gated = model.architecture->gated;
  const std::size_t words = kernels::SignWords(d);
  const auto rows_bytes = [&](DType type) { return Area(kernels::RowBytes(type, d), f) + 64; };
  const std::size_t dense_row = kernels::RowBytes(types.dense, d);
  const int dense_rows =
      std::max(1, static_cast<int>(types.dense_bytes / dense_row / kernels::kPanelRows)) *
      kernels::kPanelRows;
  const std::size_t layer = (gated ? rows_bytes(types.gate) : 0) + rows_bytes(types.up) +
                            rows_bytes(types.down) + Area(words, f) * 8 +
                            Area(dense_row, dense_rows) + 64;
  const int layers = std::clamp(static_cast<int>(bytes / layer), 1, model.num_hidden_layers);
  ASSIGN_OR_RETURN(out->memory, base::HugeBuffer::Allocate(Area(layer, layers)));
  Filler filler(base::Octets(out->memory.data()), d);
  out->config = model;
  out->config.num_hidden_layers = layers;
  const auto neurons = [&](DType type) {
    return model::NeuronMatrix{.linear = {{type, f, d, filler.Rows(type, f)}, nullptr},
                               .layout = model::Layout::kRows};
  };
  for (int l = 0; l < layers; ++l) {
    model::LayerWeights& w = out->weights.layers.emplace_back();
    if (gated) w.gate = neurons(types.gate);
    w.up = neurons(types.up);
    w.down_rows = {types.down, f, d, filler.Rows(types.down, f)};
    out->dense.push_back({types.dense, dense_rows, d, filler.Panels(types.dense, dense_rows)});
    const std::uint64_t* planes = filler.Words(Area(words, f));
    out->predictors.layers.emplace_back().sign =
        predictor::SignPredictor{.planes = {f, d, planes, nullptr},
                                 .columns = {},
                                 .slices = 1,
                                 .thresholds = std::vector<std::int32_t>(f)};
  }
  return out;
}

}  // namespace thermocline::load
