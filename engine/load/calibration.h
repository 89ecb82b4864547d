// Measures the speed of this machine with a model's types and shapes, for placement: takes two
// seconds, and is cached per machine and model.
#pragma once

#include <string>

#include "engine/api/ffn_mode.h"
#include "engine/base/status.h"
#include "engine/load/synthetic_network.h"
#include "engine/placement/machine.h"
#include "kernels/op_table.h"

namespace thermocline::load {

struct CalibrationOptions {
  NetworkTypes types = {};
  const kernels::OpTable* ops = nullptr;
  // The threads of each side, with a second partition of the CPU as the hot side; with hot_threads
  // 0 there is no hot side, and its results are meaningless.
  int cold_threads = 1, hot_threads = 1;
  std::size_t network_bytes = 0;  // of the model: smaller ones may fit into caches
  double seconds = 2;
};

// The number of neurons with which a layer's fixed cost is measured.
inline constexpr int kFewNeurons = 64;
// One side's seconds of a layer, and its live neurons.
struct Side {
  double seconds, live;
};
// Measurements with few neurons, none live (`few`); with `neurons`: none live, few live, many live,
// none predicted, mode dense (0 seconds: not measured).
struct Passes {
  Side few, decided, some, many, predicting, whole = {0, 0};
};
// Computes a side's speeds from its passes, except dense_bytes_per_s.
placement::Processor Derive(const model::LayerWeights& w, const Passes& passes, double neurons);

// Speeds of both sides while both work, their waits for each other, and the rate of memory copies;
// flash is left out. Errors as MakeSyntheticNetwork.
Result<placement::Machine> MeasureCpu(const model::ModelConfig& model,
                                      const CalibrationOptions& options);

// MeasureCpu, or the cached result of an earlier call:
// $XDG_CACHE_HOME/thermocline/machine-<hash>.json. The key consists of the processor, kernels,
// threads and `model_hash`. `anew` ignores cached results.
Result<placement::Machine> CpuMachine(const model::ModelConfig& model,
                                      const std::string& model_hash,
                                      const CalibrationOptions& options, bool anew = false);

}  // namespace thermocline::load
