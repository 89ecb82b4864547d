// Scalar oracle of SumRows (kernels/rows.h).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/layout/row_layout.h"
#include "kernels/reference/reference.h"
#include "kernels/shared_sum.h"
#include "kernels/sum_inputs.h"

namespace thermocline::kernels::reference {
namespace {

// One row's block of 32 columns: weight = a * (level - offset) + m.
struct RowBlock {
  float a, m;
  int levels[32];  // less the type's offset
};

// Reads columns [32 block, 32 block + 32) of a row; `lane` is the row in lane 0 of a panel.
RowBlock ReadBlock(DType type, const std::uint8_t* lane, int block) {
  const PanelLayout layout = LayoutOf(type);
  const bool k_type = Traits(type).block_size == 256;
  const int in_block = k_type ? block % 8 : 0;
  const std::uint8_t* data =
      lane + (k_type ? block / 8 : block) * PanelBytes(type, Traits(type).block_size);
  RowBlock out{.a = PanelHalf(data, 0, 0), .m = 0, .levels = {}};
  if (type == DType::kQ4_K) {
    out.a *= static_cast<float>(SixBitNumber(data + 64, 0, in_block));
    out.m = Scaled(-PanelHalf(data, 32, 0), SixBitNumber(data + 64, 0, 8 + in_block));
  } else if (layout.min >= 0) {
    out.m = PanelHalf(data, layout.min, 0);
  }
  for (int c = 0; c < 32; ++c)
    out.levels[c] = PanelLevel(type, data, 0, in_block * 32 + c) - layout.offset;
  return out;
}

float Largest(const std::vector<RowBlock>& rows, const float* h) {
  float largest = 0;
  for (std::size_t k = 0; k < rows.size(); ++k)
    largest = std::max(largest, std::fabs(h[k] * rows[k].a));
  return largest;
}

float Minimums(const std::vector<RowBlock>& rows, const float* h) {
  float sum = 0;
  for (std::size_t k = 0; k < rows.size(); ++k) sum = std::fma(h[k], rows[k].m, sum);
  return sum;
}

// Sums of one chunk's rows in one block of 32 columns, by the bytes of the coefficients.
struct ByteSums {
  std::int32_t high[32] = {}, low[32] = {};
};
ByteSums SumBytes(const std::vector<RowBlock>& rows, const float* h, float limit) {
  ByteSums sums;
  if (limit <= kActivationMin) return sums;
  const float inverse = kCoefficientMax / limit;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const int q = static_cast<int>(std::nearbyint(h[k] * rows[k].a * inverse));
    const int q_high = (q + 128) >> 8;
    for (int c = 0; c < 32; ++c) {
      sums.high[c] += q_high * rows[k].levels[c];
      sums.low[c] += (q - 256 * q_high) * rows[k].levels[c];
    }
  }
  return sums;
}

// y of one column after one run of rows.
float AddRun(float limit, std::int32_t high, std::int32_t low, float y) {
  return std::fma(limit * (1.0F / kCoefficientMax),
                  std::fma(256.0F, static_cast<float>(high), static_cast<float>(low)), y);
}

// One token, one block of 32 columns, the rows of one chunk.
void AddChunk(const std::vector<RowBlock>& rows, const float* h, bool has_minimums, float* y) {
  const float largest = Largest(rows, h), minimums = Minimums(rows, h);
  const ByteSums sums = SumBytes(rows, h, largest);
  for (int c = 0; c < 32; ++c) {
    y[c] = AddRun(largest, sums.high[c], sums.low[c], y[c]);
    if (has_minimums) y[c] += minimums;
  }
}

// The same, as one partition's part of a shared sum.
void ShareChunk(const std::vector<RowBlock>& rows, const float* h, const SharedSum& part,
                std::size_t at) {
  if (part.limits == nullptr) {
    part.maxima[at] = Largest(rows, h);
    return;
  }
  const ByteSums sums = SumBytes(rows, h, part.limits[at]);
  std::copy_n(sums.high, 32, part.high + at * 32);
  std::copy_n(sums.low, 32, part.low + at * 32);
  if (part.minimums != nullptr) part.minimums[at] = Minimums(rows, h);
}

// A block of 32 columns of a run without rows.
void ShareNothing(const SharedSum& part, std::size_t at) { ShareChunk({}, nullptr, part, at); }

void ShareNothing(const SumRowsParams& p) {
  const int runs = NumSumRuns(p.weights.rows) * p.tokens;
  const int blocks = p.weights.cols / 32;
  for (int run = 0; run < runs; ++run) {
    for (int block = p.col_begin / 32; block < p.col_end / 32; ++block)
      ShareNothing(*p.shared, StartOf(run, blocks) + block);
  }
}

void SumQuantized(const SumRowsParams& p, std::vector<std::uint8_t>& lanes) {
  const DType type = p.weights.type;
  if (p.shared != nullptr) ShareNothing(p);
  for (int t = 0; t < p.tokens; ++t) {
    float* out = p.out + StartOf(t, p.out_stride);
    if (p.shared == nullptr) std::fill(out + p.col_begin, out + p.col_end, 0.0F);
    for (int first = 0; first < p.count;) {
      const int chunk = p.ids[first] / kSumChunk;
      int last = first;
      while (last < p.count && p.ids[last] / kSumChunk == chunk) ++last;
      for (int block = p.col_begin / 32; block < p.col_end / 32; ++block) {
        std::vector<RowBlock> rows;
        for (int k = first; k < last; ++k) {
          const std::uint8_t* row = p.weights.row(p.ids[k]);
          GatherPanel(type, &row, 1, p.weights.cols, lanes.data());
          rows.push_back(ReadBlock(type, lanes.data(), block));
        }
        const float* h = p.h + StartOf(t, p.h_stride) + first;
        if (p.shared == nullptr) {
          AddChunk(rows, h, LayoutOf(type).min >= 0, out + block * 32);
        } else {
          const int run = t * NumSumRuns(p.weights.rows) + chunk;
          ShareChunk(rows, h, *p.shared, StartOf(run, p.weights.cols / 32) + block);
        }
      }
      first = last;
    }
  }
}

void SumFloats(const SumRowsParams& p, std::vector<float>& row) {
  for (int t = 0; t < p.tokens; ++t) {
    float* out = p.out + StartOf(t, p.out_stride);
    std::fill(out + p.col_begin, out + p.col_end, 0.0F);
    for (int k = 0; k < p.count; ++k) {
      DequantizeMatrixRow(p.weights, p.ids[k], row.data());
      const float h = p.h[StartOf(t, p.h_stride) + k];
      for (int c = p.col_begin; c < p.col_end; ++c) out[c] = std::fma(h, row[c], out[c]);
    }
  }
}

}  // namespace

void SumInputs(const SumInputsParams& p) {
  std::vector<std::uint8_t> lanes(PanelBytes(p.weights.type, p.weights.cols));
  for (int block = 0; block < p.weights.cols / 32; ++block) {
    std::vector<RowBlock> rows;
    for (int k = 0; k < p.count; ++k) {
      const std::uint8_t* row = p.weights.row(p.ids[k]);
      GatherPanel(p.weights.type, &row, 1, p.weights.cols, lanes.data());
      rows.push_back(ReadBlock(p.weights.type, lanes.data(), block));
    }
    const ByteSums sums = SumBytes(rows, p.x, p.limits[block]);
    std::copy_n(sums.high, 32, p.high + block * 32);
    std::copy_n(sums.low, 32, p.low + block * 32);
  }
}

void FinishSum(const FinishSumParams& p) {
  for (int c = p.col_begin; c < p.col_end; ++c) {
    float y = 0;
    for (int run = 0; run < p.runs; ++run) {
      const std::size_t at = StartOf(run, p.cols) + c;
      std::int32_t high = 0, low = 0;
      float minimums = 0;
      for (int i = 0; i < p.num_parts; ++i) {
        high += p.parts[i].high[at];
        low += p.parts[i].low[at];
        if (p.parts[i].minimums != nullptr) minimums += p.parts[i].minimums[at / 32];
      }
      y = AddRun(p.limits[at / 32], high, low, y) + minimums;
    }
    p.out[c] = y;
  }
}

void SumRows(const SumRowsParams& p) {
  const int cols = p.weights.cols;
  if (Traits(p.weights.type).quantized) {
    std::vector<std::uint8_t> lanes(PanelBytes(p.weights.type, p.weights.cols));
    SumQuantized(p, lanes);
  } else {
    std::vector<float> row(cols);
    SumFloats(p, row);
  }
}

}  // namespace thermocline::kernels::reference
