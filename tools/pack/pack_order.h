// The orders of neurons that `thermocline pack` writes, and their quality.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/worker_pool.h"
#include "engine/predictor/side_car.h"
#include "engine/store/bundle_format.h"
#include "tools/pack/active_source.h"

namespace thermocline::tools {

enum class OrderKind { kCoactivation, kFrequency, kNone };

// Mean run length of needed neurons among the cold ones, on tokens that were not used for the
// order.
struct LayerRuns {
  int hot = 0;  // neurons
  double coactivation = 0, frequency = 0, random = 0;
};

struct PackOrder {
  std::string description;                        // for the file and for people
  std::vector<store::BundleIndex::Layer> layers;  // positions; activations if known
  std::int64_t tokens = 0;                        // number of tokens for the activations
  std::int64_t held_out = 0;                      // number of tokens for the runs; 0 = not measured
  std::vector<LayerRuns> runs;                    // [L], or empty
};

// The order from recorded activations: the first four fifths make it, the rest measures it.
PackOrder OrderFromActive(const ActiveLayers& layers, OrderKind kind, double hot,
                          base::WorkerPool& pool);
// The order by frequency from a profile's counts; the model's own for layers without counts.
PackOrder OrderFromCounts(const predictor::SideCar& side_car, double hot);
// The model's own order.
PackOrder OrderOfModel(int layers, int neurons);

Json RunsJson(const PackOrder& order);
void PrintRuns(const PackOrder& order);

}  // namespace thermocline::tools
