// The problem of placing neurons on tiers: a model of the time of one decoded token.
//
//   token = sum over layers of [ home_l + max(HOT_l, COLD_l) + sync_l + flash_l ] + head + switches
//
// The neurons of a layer differ only in how often they are active, so a placement of them is two
// numbers: the k most frequent are hot, the least frequent lie on flash, the others in RAM. Counts
// are whole batches (the last of a layer may be smaller); flash is read by the cold side, which
// computes the neurons read.
//   home_l    attention, norms and K and V, on the side where the layer is at home: bytes /
//             dense_bytes_per_s, and layer_s. The network needs attention's result, so neither side
//             can begin before: the time is added, not hidden behind the other side.
//   HOT_l     the sum over its neurons of the time of one (below); layer_s where there are any and
//   COLD_l    the layer is not at home there
//   a neuron  dense:      (deciding + rest) / whole_bytes_per_s
//             exact:      deciding / decide_bytes_per_s + f (rest / rows_bytes_per_s + row_s)
//             predicted:  predictor / predictor_bytes_per_s
//                         + min(1, overprediction f) (deciding / rows_bytes_per_s + row_s)
//                         + f (rest / rows_bytes_per_s + row_s)
//             chosen:     f (deciding + rest) / whole_bytes_per_s, of an expert that a router names
//             deciding = bytes of its gate row (up, where there is no gate), rest = those of the
//             others, f = the share of tokens it is active for
//   sync_l    2 sync_s + sync_bytes / link_bytes_per_s where both sides have work in the layer: one
//             gets the input from the other, and gives its part of the result back
//   flash_l   the sum over its neurons on flash of reads x FlashReadTime: nothing is hidden behind
//             the computation, every needed neuron is missed. Reads: f of rest where the deciding
//             rows are held in RAM; else all of it, when it is decided (dense, exact: always)
//   head      bytes / dense_bytes_per_s of its side
//   switches  sync_s for each change of side: layers 0..m-1 are at home on the hot side, the others
//             on the cold, the head on either; all on the cold side without `hot_homes`
// Memory: hot = homes, K and V, hot neurons with their predictors, head, hot_fixed_bytes.
// RAM = the same of the cold side, memory_fixed_bytes, and of neurons on flash the predictors, and
// the deciding rows if they are held. Hot weights take no RAM. `unified`: one memory, of
// min(hot_bytes, memory_bytes); the cold side computes nothing, flash neurons are computed hot.
//
// Source: PowerInfer (Song et al. 2023), section 6.3, equations 4 to 8: the batch of 64 neurons, a
// neuron's time as that of reading it, the sync that must pay off in a layer. Our additions: both
// sides' time is minimised, which the paper states but its release omits, and everything else is
// placed too.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/status.h"
#include "engine/placement/machine.h"

namespace thermocline::placement {

// The rows of a network that are read.
enum class Reading { kDense, kExact, kPredicted, kChosen };

struct LayerShape {
  Reading reading = Reading::kDense;
  double overprediction = 1;           // predicted neurons over active ones
  std::int64_t home_bytes = 0;         // weights of attention and norms
  std::int64_t kv_bytes = 0;           // K and V: held, and read for every token
  std::int64_t deciding_bytes = 0;     // of a neuron
  std::int64_t rest_bytes = 0;         // of a neuron
  std::int64_t predictor_bytes = 0;    // of a neuron; 0 unless predicted
  std::vector<double> frequency = {};  // [F] in [0, 1], descending

  std::int64_t row_bytes() const { return deciding_bytes + rest_bytes; }
  std::int64_t neurons() const { return frequency.size(); }
};

struct Problem {
  Machine machine;
  std::vector<LayerShape> layers;       // [L]
  std::int64_t head_bytes = 0;          // output matrix and final norm
  std::int64_t sync_bytes = 0;          // bytes over the link if both sides work on a layer
  std::int64_t hot_fixed_bytes = 0;     // workspace and reserve, if anything is hot
  std::int64_t memory_fixed_bytes = 0;  // program, embeddings, workspace and reserve
  int batch = 64;                       // neurons
  bool head_with_homes = false;         // the head is hot only if all layers are at home there

  std::int64_t neurons() const;  // of all layers
};

// InvalidArgument names the layer and the field: no layers or neurons, sizes below 0, frequencies
// that are NaN, outside [0, 1] or not descending, rates that are not above 0.
Status Validate(const Problem& problem);

}  // namespace thermocline::placement
