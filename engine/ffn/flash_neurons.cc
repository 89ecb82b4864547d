#include "engine/ffn/flash_neurons.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

FlashNeurons::FlashNeurons(const Params& p)
    : store_(p.store),
      ranges_(p.context.ranges),
      neurons_(p.context.config.intermediate_size),
      deciding_held_(p.deciding_held),
      read_ahead_(p.read_ahead),
      ids_(neurons_),
      masks_(ids_.size()),
      gates_(p.deciding_held ? ids_.size() * p.tokens_max : 0),
      arrivals_(ids_.size()),
      wanted_ids_(ids_.size()),
      wanted_masks_(ids_.size()),
      taken_(p.context.pool.threads(), GatedNeurons(p.tokens_max)) {
  counts_.resize((ids_.size() + kRange - 1) / kRange);
}

std::size_t FlashNeurons::Bytes(const FfnSizes& sizes) {
  const std::size_t neuron = 2 * (sizeof(int) + sizeof(std::uint16_t)) + sizeof(Arrival);
  const int gates = sizes.deciding_held ? sizes.sparse_tokens() : 0;
  return base::Area(1, sizes.neurons()) * neuron +
         base::Area(gates, sizes.neurons()) * sizeof(float) +
         base::Area(sizes.neurons() / kRange + 1, 1) * sizeof(int) +
         sizes.threads * GatedNeurons::Bytes(sizes.sparse_tokens());
}

float* FlashNeurons::Gates(int token, int place) {
  return gates_.data() + nn::Offset(token, neurons_) + place;
}

Status FlashNeurons::ReadAll(int layer, int tokens, bool next_too) {
  store_.RequestAll(layer, tokens <= kSparseTokensMax);
  RETURN_IF_ERROR(store_.Await());
  if (next_too) store_.ReadAllAhead(layer + 1);
  return OkStatus();
}

void FlashNeurons::Put(const NeuronRange& range, const NeuronList& candidates) {
  counts_[range.index] = candidates.count;
  std::copy_n(candidates.ids.data(), candidates.count, ids_.data() + range.begin);
  std::copy_n(candidates.masks.data(), candidates.count, masks_.data() + range.begin);
}

void FlashNeurons::Put(const NeuronRange& range, const GatedNeurons& candidates, int tokens) {
  Put(range, candidates.list);
  for (int t = 0; t < tokens; ++t)
    std::copy_n(candidates.gates.data() + nn::Offset(t, kRange), candidates.list.count,
                Gates(t, range.begin));
}

void FlashNeurons::Request(int layer, bool resident_only) {
  std::size_t wanted = 0;
  for (int range = 0; range < ranges_.NumRanges(layer); ++range) {
    const auto begin = base::Area(range, kRange), end = begin + counts_[range];
    for (std::size_t place = begin; place < end; ++place) {
      const bool here = store_.Has(layer, ids_[place]);
      arrivals_[place] = here ? Arrival::kHere : resident_only ? Arrival::kLeftOut : Arrival::kLate;
      if (arrivals_[place] == Arrival::kLeftOut) continue;
      wanted_ids_[wanted] = ids_[place];
      wanted_masks_[wanted++] = masks_[place];
    }
  }
  store_.Request(layer, std::span(wanted_ids_).first(wanted),
                 std::span(wanted_masks_).first(wanted));
}

const GatedNeurons& FlashNeurons::Candidates(const NeuronRange& range, bool late, int tokens,
                                             int thread) {
  GatedNeurons& taken = taken_[thread];
  const Arrival wanted = late ? Arrival::kLate : Arrival::kHere;
  taken.list.count = 0;
  for (int k = 0; k < counts_[range.index]; ++k) {
    const auto place = static_cast<std::size_t>(range.begin) + k;
    if (arrivals_[place] != wanted) continue;
    for (int t = 0; deciding_held_ && t < tokens; ++t)
      taken.gates[nn::Offset(t, kRange) + taken.list.count] = *Gates(t, static_cast<int>(place));
    taken.list.Add(ids_[place], masks_[place]);
  }
  return taken;
}

}  // namespace thermocline::ffn
