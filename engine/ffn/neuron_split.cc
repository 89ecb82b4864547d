#include "engine/ffn/neuron_split.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/log.h"

namespace thermocline::ffn {
namespace {

std::size_t RowBytes(const kernels::PackedMatrix& m) { return kernels::RowBytes(m.type, m.cols); }

// The offsets of the rows in a slot, and its size.
struct Slot {
  std::size_t up, down, bytes;
};
Slot SlotOf(const model::LayerWeights& w) {
  const bool gated = w.gate.linear.weight.rows > 0;
  const std::size_t gate = gated ? RowBytes(w.gate.linear.weight) : 0;
  const std::size_t up = RowBytes(w.up.linear.weight);
  return {gate, gate + up, gate + up + kernels::RowBytes(w.down_rows.type, w.down_rows.cols)};
}

NeuronIds Others(const NeuronIds& ids, int count) {
  NeuronIds others(ids.size());
  for (std::size_t l = 0; l < ids.size(); ++l) {
    std::size_t next = 0;
    for (int id = 0; id < count; ++id) {
      if (next < ids[l].size() && ids[l][next] == id) {
        ++next;
      } else {
        others[l].push_back(id);
      }
    }
  }
  return others;
}

}  // namespace

NeuronSplit::NeuronSplit(Params p)
    : intermediate_size_(p.intermediate_size),
      weights_(p.weights),
      flash_(p.flash),
      deciding_held_(p.deciding_held),
      hot_(std::move(p.hot)),
      cold_(Others(hot_, intermediate_size_)) {
  hot_weights_.layers = weights_.layers;
}

Result<std::unique_ptr<NeuronSplit>> NeuronSplit::InPlace(Params params) {
  for (const model::LayerWeights& w : params.weights.layers) {
    if (w.down_rows.rows == 0)
      return base::FailedPrecondition("the down projection is not neuron-major");
    if (w.down_rows.type != params.weights.FirstNetwork().down_rows.type)
      return base::FailedPrecondition(
          "the layers' down projections are of several types; neurons can be shared out where all "
          "are of one (thermocline convert --quantize)");
  }
  return std::unique_ptr<NeuronSplit>(new NeuronSplit(std::move(params)));
}

Result<std::unique_ptr<NeuronSplit>> NeuronSplit::Move(Params params) {
  ASSIGN_OR_RETURN(auto split, InPlace(std::move(params)));
  std::size_t bytes = 0;
  for (std::size_t l = 0; l < split->hot_.size(); ++l)
    bytes += split->hot_[l].size() * split->SlotBytes(l);
  ASSIGN_OR_RETURN(split->memory_, base::HugeBuffer::Allocate(std::max<std::size_t>(bytes, 64)));
  auto* block = base::Octets(split->memory_.data());
  split->Reserve();
  for (std::size_t l = 0; l < split->hot_.size(); ++l) {
    RETURN_IF_ERROR(split->MoveLayer(l, block));
    block += split->hot_[l].size() * split->SlotBytes(l);
  }
  if (split->flash_ != nullptr) split->flash_->EndStep(0);
  split->locked_ = ::mlock(split->memory_.data(), split->memory_.size()) == 0;
  if (!split->locked_) {
    base::LogWarning("the hot neurons' ", base::HumanBytes(bytes), " cannot be locked in memory (",
                     std::strerror(errno),
                     "); raise the limit (ulimit -l, LimitMEMLOCK=) if the machine swaps");
  }
  return split;
}

Result<std::unique_ptr<NeuronSplit>> NeuronSplit::Remove(Params params, const Visit& visit) {
  ASSIGN_OR_RETURN(auto split, InPlace(std::move(params)));
  split->Reserve();
  for (int l = 0; l < base::IntSize(split->hot_); ++l) {
    if (split->hot_[l].empty()) continue;
    RETURN_IF_ERROR(split->WithRows(l, [&] { return visit(l, split->weights_.layers[l]); }));
    split->CompactLayer(l);
  }
  if (split->flash_ != nullptr) split->flash_->EndStep(0);
  return split;
}

void NeuronSplit::Reserve() {
  const std::size_t layers = hot_.size();
  for (std::vector<Where>* of : {&hot_where_, &cold_gate_, &cold_up_, &cold_down_})
    of->resize(layers);
}

template <typename Body>
Status NeuronSplit::WithRows(std::size_t layer, const Body& body) {
  if (flash_ != nullptr) {
    flash_->RequestAll(static_cast<int>(layer));
    RETURN_IF_ERROR(flash_->Await());
  }
  RETURN_IF_ERROR(body());
  if (flash_ != nullptr) flash_->EndLayer(static_cast<int>(layer));
  return OkStatus();
}

std::size_t NeuronSplit::SlotBytes(std::size_t layer) const {
  return SlotOf(weights_.layers[layer]).bytes;
}

Status NeuronSplit::MoveLayer(std::size_t layer, std::uint8_t* block) {
  const model::LayerWeights& cold = weights_.layers[layer];
  model::LayerWeights& hot = hot_weights_.layers[layer];
  const bool gated = cold.gate.linear.weight.rows > 0;
  const Slot slot = SlotOf(cold);
  Where& where = hot_where_[layer];
  where.resize(intermediate_size_);
  RETURN_IF_ERROR(WithRows(layer, [&] {
    for (const int id : hot_[layer]) {
      if (gated) std::memcpy(block, cold.gate.rows().row(id), RowBytes(cold.gate.linear.weight));
      std::memcpy(block + slot.up, cold.up.rows().row(id), RowBytes(cold.up.linear.weight));
      std::memcpy(block + slot.down, cold.down_rows.row(id),
                  kernels::RowBytes(cold.down_rows.type, cold.down_rows.cols));
      where[id] = block;
      block += slot.bytes;
    }
    return OkStatus();
  }));
  hot.gate.where = hot.up.where = hot.down_rows.where = where.data();
  hot.gate.ahead = 0;
  hot.up.ahead = slot.up;
  hot.down_rows.ahead = slot.down;
  CompactLayer(layer);
  return OkStatus();
}

void NeuronSplit::CompactLayer(std::size_t layer) {
  model::LayerWeights& cold = weights_.layers[layer];
  const auto compact = [&](model::NeuronMatrix& matrix, Where& to) {
    if (matrix.where != nullptr || matrix.linear.weight.rows == 0) return;  // from flash
    Compact(cold_[layer], const_cast<std::uint8_t*>(matrix.linear.weight.data),
            RowBytes(matrix.linear.weight), to);
    matrix.where = to.data();
  };
  compact(cold.gate, cold_gate_[layer]);
  compact(cold.up, cold_up_[layer]);
  if (cold.down_rows.where == nullptr) {
    Compact(cold_[layer], const_cast<std::uint8_t*>(cold.down_rows.data),
            kernels::RowBytes(cold.down_rows.type, cold.down_rows.cols), cold_down_[layer]);
    cold.down_rows.where = cold_down_[layer].data();
  }
}

void NeuronSplit::Compact(const std::vector<int>& cold, std::uint8_t* rows, std::size_t row_bytes,
                          Where& where) {
  where.assign(intermediate_size_, nullptr);
  if (rows == nullptr) {  // the host never had these rows
    CHECK(cold.empty());
    return;
  }
  std::uint8_t* to = rows;
  for (const int id : cold) {  // ascending, so no row is overwritten before it has moved
    const std::size_t at = id;
    std::memmove(to, rows + at * row_bytes, row_bytes);
    where[at] = to;
    to += row_bytes;
  }
  // The remaining rows are read for every token, so their huge pages are kept.
  using Pages = base::HugeBuffer::Pages;
  weights_.memory.GiveBack(to, (intermediate_size_ - cold.size()) * row_bytes,
                           cold.empty() ? Pages::kSmall : Pages::kHuge);
}

}  // namespace thermocline::ffn
