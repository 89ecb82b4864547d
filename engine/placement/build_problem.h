// The placement problem of a model on a machine.
#pragma once

#include <span>
#include <vector>

#include "engine/model/model_file.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

struct BuildOptions {
  std::vector<Reading> readings;  // [L]
  int context_length = 4096;      // tokens, all of them cached and read for each token
  double kv_element_bytes = 2;    // of a cached key or value: f16
  int batch = 64;                 // neurons
  // The predictors of the predicted layers.
  double overprediction = 1.3;       // of calibrated sign predictors at a recall of 0.99
  std::int64_t predictor_bytes = 0;  // of a neuron; 0: a bit for each column and a threshold
  // Number of tokens that activate each neuron, [L][F], and number of profiled tokens. If empty,
  // `active` and `zipf` model the neurons' frequencies.
  std::vector<std::span<const std::uint32_t>> activations = {};
  std::int64_t profiled_tokens = 0;
  double active = 0.1;  // mean share of neurons active for a token; for a mixture, share of experts
  double zipf = 0.8;    // exponent of frequency over rank
};

// In a mixture the units are its experts, each placed individually; weights of the networks that
// every token reads count as attention, and `batch` and `readings` are ignored.
//
// Reads only the shapes and types of `file`. Neurons have their size in memory, including a share
// of an image's padding. InvalidArgument: inconsistent sizes; otherwise as model::MeasureWeights.
Result<Problem> BuildProblem(const model::ModelFile& file, const Machine& machine,
                             const BuildOptions& options);

// [n] min(1, s rank^-zipf) with the mean `active`.
std::vector<double> ZipfFrequencies(std::int64_t n, double active, double zipf);

// Neurons in descending order of their counts, ties by lower id. [F]
std::vector<std::int32_t> ByFrequency(std::span<const std::uint32_t> counts);

}  // namespace thermocline::placement
