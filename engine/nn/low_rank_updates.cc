#include "engine/nn/low_rank_updates.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/offset.h"

namespace thermocline::nn {
namespace {

constexpr int kPanelsPerItem = 8, kRowsPerItem = kPanelsPerItem * kernels::kPanelRows;

}  // namespace

int LowRankUpdates::RankMax(const UpdateTable& table) {
  int most = 0;
  for (const auto& [linear, all] : table) {
    int ranks = 0;
    for (const UpdateFactors& factors : all) ranks += factors.a.rows;
    most = std::max(most, ranks);
  }
  return most;
}

LowRankUpdates::LowRankUpdates(const UpdateTable& table, const kernels::OpTable& ops,
                               base::WorkerPool& pool, int tokens_max)
    : table_(table),
      ops_(ops),
      pool_(pool),
      reduced_(base::Area(kProductsMax * tokens_max, RankMax(table))),
      scratch_(pool.threads(), std::vector<float>(base::Area(tokens_max, kRowsPerItem))) {
  int adapters = 0;
  for (const auto& [linear, all] : table) adapters = std::max(adapters, base::IntSize(all));
  scales_.reserve(adapters);
  items_.reserve(base::Area(kProductsMax, adapters));
  changes_.reserve(kProductsMax);
}

int LowRankUpdates::Begin(std::span<const Product> products, const kernels::Activations& input,
                          int tokens) {
  items_.clear();
  changes_.clear();
  input_ = input;
  tokens_ = tokens;
  CHECK_LE(base::IntSize(products), kProductsMax);
  float* reduced = reduced_.data();
  for (const Product& product : products) {
    const auto found = table_.find(product.linear);
    if (found == table_.end()) continue;
    const int first = base::IntSize(items_);
    for (const UpdateFactors& factors : found->second) {
      const float scale = factors.adapter < base::IntSize(scales_) ? scales_[factors.adapter] : 0;
      if (scale == 0) continue;
      items_.push_back({&factors, scale * factors.scale, reduced});
      reduced += Offset(tokens, factors.a.rows);
    }
    if (base::IntSize(items_) > first)
      changes_.push_back(
          {&product, found->second.front().b.rows, first, base::IntSize(items_) - first});
  }
  slices_ = std::min(tokens, pool_.threads());
  return base::IntSize(items_) * slices_;
}

// reduced = s A x, of a slice of the tokens.
void LowRankUpdates::Reduce(int item) {
  const Item& of = items_[item / slices_];
  const int slice = item % slices_, first = slice * tokens_ / slices_;
  const int count = (slice + 1) * tokens_ / slices_ - first;
  const kernels::PackedMatrix& a = of.factors->a;
  float* out = of.reduced + Offset(first, a.rows);
  ops_.gemm({.weights = a,
             .activations = {.x = input_.x + Offset(first, a.cols), .cols = a.cols},
             .tokens = count,
             .out = out,
             .out_stride = a.rows,
             .panel_begin = 0,
             .panel_end = kernels::NumPanels(a.rows)});
  for (int i = 0; i < count * a.rows; ++i) out[i] *= of.scale;
}

void LowRankUpdates::End() {
  constexpr std::size_t kBytesAlone = 64 << 10;  // take less time than other threads to begin
  int ranges = 0;
  std::size_t bytes = 0;
  for (const Change& change : changes_) {
    ranges += (change.rows + kRowsPerItem - 1) / kRowsPerItem;
    for (const Item& item : std::span(items_).subspan(change.first, change.count))
      bytes += item.factors->b.bytes() * tokens_;
  }
  if (bytes <= kBytesAlone) {
    for (int range = 0; range < ranges; ++range) ExpandRange(range, 0);
  } else {
    pool_.Run(ranges, [this](int range, int thread) { ExpandRange(range, thread); });
  }
}

void LowRankUpdates::ExpandRange(int range, int thread) {
  for (const Change& change : changes_) {
    const int panels = kernels::NumPanels(change.rows);
    const int of_change = (panels + kPanelsPerItem - 1) / kPanelsPerItem;
    if (range < of_change) {
      const int begin = range * kPanelsPerItem;
      return Expand(change, begin, std::min(kPanelsPerItem, panels - begin),
                    scratch_[thread].data());
    }
    range -= of_change;
  }
}

// Adds B reduced to panels of the output's rows.
void LowRankUpdates::Expand(const Change& change, int panel_begin, int panels, float* scratch) {
  const int all = change.rows, row = panel_begin * kernels::kPanelRows;
  const int rows = std::min(panels * kernels::kPanelRows, all - row);
  for (const Item& item : std::span(items_).subspan(change.first, change.count)) {
    const kernels::PackedMatrix& b = item.factors->b;
    ops_.gemm({.weights = {b.type, rows, b.cols, b.panel(panel_begin)},
               .activations = {.x = item.reduced, .cols = b.cols},
               .tokens = tokens_,
               .out = scratch,
               .out_stride = kRowsPerItem,
               .panel_begin = 0,
               .panel_end = panels});
    for (int t = 0; t < tokens_; ++t)
      ops_.add(change.product->out + Offset(t, all) + row, scratch + Offset(t, kRowsPerItem), rows);
  }
}

}  // namespace thermocline::nn
