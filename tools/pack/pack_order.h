// The orders of neurons that `thermocline pack` writes, and what they are worth.
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

// Mean runs of needed neurons among the cold ones, on tokens that no order was made from.
struct LayerRuns {
  int hot = 0;  // neurons
  double coactivation = 0, frequency = 0, random = 0;
};

struct PackOrder {
  std::string description;                        // for the file and for people
  std::vector<store::BundleIndex::Layer> layers;  // positions, activations if known
  std::int64_t tokens = 0;                        // behind the activations
  std::int64_t held_out = 0;                      // tokens that the runs were counted on; 0: not
  std::vector<LayerRuns> runs;                    // [L], or empty
};

// From recorded activations: the first four fifths make the order, the rest judges it.
PackOrder OrderFromActive(const ActiveLayers& layers, OrderKind kind, double hot,
                          base::WorkerPool& pool);
// From a profile's counts, by frequency; as the model has it where a layer has none.
PackOrder OrderFromCounts(const predictor::SideCar& side_car, double hot);
// As the model has it.
PackOrder OrderOfModel(int layers, int neurons);

Json RunsJson(const PackOrder& order);
void PrintRuns(const PackOrder& order);

}  // namespace thermocline::tools
