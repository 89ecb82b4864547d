#include "engine/ffn/live_neurons.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

LiveNeurons::LiveNeurons(int neurons, int tokens_max, int range)
    : neurons_(neurons),
      range_(range),
      ids_(neurons),
      h_(ids_.size() * tokens_max),
      counts_((ids_.size() + range - 1) / range),
      joined_ids_(ids_.size()),
      joined_h_(h_.size()) {}

std::size_t LiveNeurons::Bytes(int neurons, int tokens_max, int range) {
  return base::Area(2, neurons) * sizeof(int) +
         base::Area(2 * tokens_max, neurons) * sizeof(float) +
         base::Area(neurons / range + 1, 1) * sizeof(Count);
}

float* LiveNeurons::Row(std::vector<float>& h, int token, int place) const {
  return h.data() + nn::Offset(token, neurons_) + place;
}

void LiveNeurons::Put(const NeuronRange& range, const NeuronList& live, const float* h,
                      int tokens) {
  counts_[range.index] = {live.count, live.count};
  std::copy_n(live.ids.data(), live.count, ids_.data() + range.begin);
  for (int t = 0; t < tokens; ++t)
    std::copy_n(h + nn::Offset(t, kRange), live.count, Row(h_, t, range.begin));
}

void LiveNeurons::Expect(const NeuronRange& range, const NeuronList& candidates, int tokens) {
  counts_[range.index] = {candidates.count, 0};
  std::copy_n(candidates.ids.data(), candidates.count, ids_.data() + range.begin);
  for (int t = 0; t < tokens; ++t) std::fill_n(Row(h_, t, range.begin), candidates.count, 0.0F);
}

void LiveNeurons::Add(const NeuronRange& range, const NeuronList& live, const float* h,
                      int tokens) {
  counts_[range.index].live += live.count;
  const int* place = ids_.data() + range.begin;
  for (int k = 0; k < live.count; ++k, ++place) {
    while (*place != live.ids[k]) ++place;
    const int at = static_cast<int>(place - ids_.data());
    for (int t = 0; t < tokens; ++t) *Row(h_, t, at) = h[nn::Offset(t, kRange) + k];
  }
}

FoundNeurons LiveNeurons::Join(int ranges, int tokens, bool keep_zeros) {
  int count = 0;
  num_live_ = 0;
  for (int range = 0; range < ranges; ++range) {
    const Count& mine = counts_[range];
    num_live_ += mine.live;
    for (int place = range * range_; place < range * range_ + mine.listed; ++place) {
      bool any = keep_zeros;
      for (int t = 0; t < tokens; ++t) {
        const float h = *Row(h_, t, place);
        *Row(joined_h_, t, count) = h;
        any = any || h != 0;
      }
      joined_ids_[count] = ids_[place];
      count += any ? 1 : 0;
    }
  }
  return {std::span(joined_ids_).first(count), joined_h_.data(), neurons_, tokens > 1};
}

}  // namespace thermocline::ffn
