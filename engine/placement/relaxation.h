// Lower bounds on the time of a token, with homes and head fixed: instead of limits, the two
// memories have prices, so that every layer can be minimised independently. At the best prices the
// bound is that of the linear relaxation.
//
// Source: Lagrangian relaxation (Geoffrion 1974); a knapsack with choices as convex hulls (Sinha
// and Zoltners 1979).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/placement/costs.h"

namespace thermocline::placement {

// Homes and head, and the memory they leave.
struct Case {
  int hot_homes = 0;
  Side head = kCold;
  std::int64_t hot_bytes = 0;     // bytes left for neurons
  std::int64_t memory_bytes = 0;  // above those of LayerCosts::MemoryBytes; may be negative
  std::int64_t hot_unit = 0;      // all uses are multiples of it
  std::int64_t memory_unit = 0;
  double fixed_s = 0;  // head and switches
};

struct Prices {
  double hot = 0, memory = 0;  // seconds per byte
};

// A bound, and its slopes in the prices: the bytes used in excess of those available.
struct Bound {
  double value = 0;
  double hot_slope = 0, memory_slope = 0;
};

struct BestBound {
  double value = 0;
  Prices prices;
  bool feasible = true;  // false: no placement fits
};

class Relaxation {
 public:
  // Requires: `tables` outlives this.
  explicit Relaxation(const CostTables& tables);

  Bound At(const Case& which, const Prices& prices) const;
  // The best prices. Stops early at values above `enough`.
  BestBound Best(const Case& which, double enough) const;
  // The least priced time at these prices of one layer at home on `side`, and the memory it then
  // uses.
  struct LayerBound {
    double value = 0;
    std::int64_t hot = 0, memory = 0;
    CostTables::Choice choice = {};
  };
  LayerBound OfLayer(std::size_t layer, Side side, const Prices& prices) const;

 private:
  struct Hull {
    std::vector<int> at;        // vertices, counts of batches
    std::vector<double> slope;  // [vertices - 1] seconds per neuron, ascending
    // The vertex that minimises value + price x neurons.
    int Least(double price) const;
  };
  static Hull LowerHull(const std::vector<std::int64_t>& x, const std::vector<double>& y, int first,
                        int last);
  // The maximum over the hot price; memory_slope is the slope at the maximum.
  struct Peak {
    Bound bound;
    double price = 0;
  };
  Peak BestHotPrice(const Case& which, double memory_price) const;
  LayerBound OfOverlap(const LayerCosts& layer, Side side, const Prices& prices) const;

  const std::vector<LayerCosts>& layers_;
  std::vector<std::array<Hull, 2>> time_;  // [L]
  std::vector<Hull> flash_;                // [L]
  double price_scale_ = 0;                 // seconds per byte: the starting price
  double seconds_max_ = 0;                 // upper bound on the seconds of any placement's layers
};

}  // namespace thermocline::placement
