#include "engine/predictor/subset.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"

namespace thermocline::predictor {
namespace {

// Allocates a buffer of `bytes` bytes owned by `out`.
Result<std::uint8_t*> NewBuffer(std::size_t bytes, Predictors& out) {
  ASSIGN_OR_RETURN(base::HugeBuffer buffer,
                   base::HugeBuffer::Allocate(std::max<std::size_t>(bytes, 64)));
  auto* data = base::Octets(buffer.data());
  out.memory.push_back(std::move(buffer));
  out.bytes += bytes;
  return data;
}

Status CopySign(const SignPredictor& all, const std::vector<int>& members, Predictors& out,
                SignPredictor& to) {
  const std::size_t words = kernels::SignWords(all.planes.cols);
  const std::size_t plane = members.size() * words;
  const bool two = all.planes.magnitude != nullptr;
  ASSIGN_OR_RETURN(std::uint8_t * bytes, NewBuffer(plane * 8 * (two ? 2 : 1), out));
  auto* sign = reinterpret_cast<std::uint64_t*>(bytes);
  std::uint64_t* magnitude = two ? sign + plane : nullptr;
  to = {.planes = {base::IntSize(members), all.planes.cols, sign, magnitude},
        .columns = all.columns,
        .slices = all.slices,
        .thresholds = {}};
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t from = members[i];
    std::copy_n(all.planes.sign + from * words, words, sign + i * words);
    if (two) std::copy_n(all.planes.magnitude + from * words, words, magnitude + i * words);
    to.thresholds.push_back(all.thresholds[from]);
  }
  return OkStatus();
}

Status CopyMatrix(const kernels::PackedMatrix& from, Predictors& out, kernels::PackedMatrix& to) {
  ASSIGN_OR_RETURN(std::uint8_t * bytes, NewBuffer(from.bytes(), out));
  std::memcpy(bytes, from.data, from.bytes());
  to = {from.type, from.rows, from.cols, bytes};
  return OkStatus();
}

// Copies rows of a matrix in panels to a new matrix in panels.
Status CopyRows(const kernels::PackedMatrix& from, const std::vector<int>& members, Predictors& out,
                kernels::PackedMatrix& to) {
  to = {from.type, base::IntSize(members), from.cols, nullptr};
  ASSIGN_OR_RETURN(std::uint8_t * panels, NewBuffer(to.bytes(), out));
  to.data = panels;
  const std::size_t row_bytes = kernels::RowBytes(from.type, from.cols);
  std::vector<std::uint8_t> panel(kernels::PanelBytes(from.type, from.cols)), chosen(panel.size());
  int held = -1;  // the panel whose rows are in `panel`
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int id = members[i];
    if (id / kernels::kPanelRows != held) {
      held = id / kernels::kPanelRows;
      kernels::RowsFromPanel(from.type, from.panel(held), from.cols, panel.data());
    }
    const std::size_t lane = i % kernels::kPanelRows;
    std::memcpy(chosen.data() + lane * row_bytes,
                panel.data() + (id % kernels::kPanelRows) * row_bytes, row_bytes);
    if (lane + 1 == kernels::kPanelRows || i + 1 == members.size()) {
      std::memset(chosen.data() + (lane + 1) * row_bytes, 0,
                  chosen.size() - (lane + 1) * row_bytes);
      kernels::PanelFromRows(from.type, chosen.data(), from.cols, panels + (i - lane) * row_bytes);
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Predictors>> SubsetOf(const Predictors& all,
                                             const std::vector<std::vector<int>>& members) {
  auto out = std::make_unique<Predictors>();
  out->layers.resize(all.layers.size());
  for (std::size_t l = 0; l < all.layers.size(); ++l) {
    const LayerPredictors& from = all.layers[l];
    LayerPredictors& to = out->layers[l];
    to.threshold = from.threshold;
    if (from.sign.has_value())
      RETURN_IF_ERROR(CopySign(*from.sign, members[l], *out, to.sign.emplace()));
    if (!from.low_rank.has_value()) continue;
    LowRankRun& run = to.low_rank.emplace();
    run.threshold = from.low_rank->threshold;
    run.before_norm = from.low_rank->before_norm;
    RETURN_IF_ERROR(CopyMatrix(from.low_rank->fc1, *out, run.fc1));
    RETURN_IF_ERROR(CopyRows(from.low_rank->fc2, members[l], *out, run.fc2));
  }
  return out;
}

}  // namespace thermocline::predictor
