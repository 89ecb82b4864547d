// Neurons of one range, from candidates to live ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/ffn/neuron_ranges.h"

namespace thermocline::ffn {

// Some neurons of a range, ascending, and for each the tokens of the step that need it.
struct NeuronList {
  NeuronList() : ids(kRange), masks(kRange) {}
  static constexpr std::size_t kBytes = kRange * (sizeof(int) + sizeof(std::uint16_t));

  std::vector<int> ids;              // [kRange], count of them in use
  std::vector<std::uint16_t> masks;  // [kRange] bit t: token t
  int count = 0;
  bool whole = false;  // every neuron of the range: its rows can be read consecutively

  std::span<const int> span() const { return std::span(ids).first(count); }
  void Add(int id, std::uint16_t mask) {
    ids[count] = id;
    masks[count++] = mask;
  }
};

// Neurons with the products of their deciding rows.
struct GatedNeurons {
  explicit GatedNeurons(int tokens_max) : gates(base::Area(tokens_max, kRange)) {}

  static std::size_t Bytes(int tokens_max) {
    return NeuronList::kBytes + base::Area(tokens_max, kRange) * sizeof(float);
  }

  NeuronList list;
  std::vector<float> gates;  // [T, kRange] before the activation; of up, if there is no gate
};

}  // namespace thermocline::ffn
