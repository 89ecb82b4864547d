// The placement problem of a model on a machine.
#pragma once

#include <span>
#include <vector>

#include "engine/model/model_file.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

struct BuildOptions {
  std::vector<Reading> readings;  // [L]
  int context_length = 4096;      // tokens, all of them cached and read
  double kv_element_bytes = 2;    // of a cached key or value: f16
  int batch = 64;                 // neurons
  // The predictors of the predicted layers.
  double overprediction = 1.3;       // as calibrated sign predictors have it at a recall of 0.99
  std::int64_t predictor_bytes = 0;  // of a neuron; 0: a bit for each column and a threshold
  // Counts of tokens that activate each neuron, [L][F], and of how many tokens. Where they are
  // empty, `active` and `zipf` say how often neurons are active.
  std::vector<std::span<const std::uint32_t>> activations = {};
  std::int64_t profiled_tokens = 0;
  double active = 0.1;  // mean share of neurons active for a token; of a mixture: of experts
  double zipf = 0.8;    // exponent of frequency over rank
};

// In a mixture the neurons are its experts, each of which is placed alone, and what every token
// reads of the networks counts with attention; `batch` and `readings` mean nothing there.
//
// Reads the shapes and types of `file` alone. Neurons have the bytes that they take in memory, of
// which a share of an image's padding. InvalidArgument: sizes that contradict each other; else as
// model::MeasureWeights.
Result<Problem> BuildProblem(const model::ModelFile& file, const Machine& machine,
                             const BuildOptions& options);

// [n] min(1, s rank^-zipf) with the mean `active`.
std::vector<double> ZipfFrequencies(std::int64_t n, double active, double zipf);

// Neurons in falling order of their counts; of equal ones the lower id first. [F]
std::vector<std::int32_t> ByFrequency(std::span<const std::uint32_t> counts);

}  // namespace thermocline::placement
