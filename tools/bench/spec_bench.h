// `thermocline bench --spec`: the modes of speculative decoding side by side, and what the pair of
// target and draft is like.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "tools/common/model_options.h"

namespace thermocline::tools {

struct SpecBenchOptions {
  bool wanted = false;  // --spec
  std::string modes = {}, prompts = {};
  double temperature = 0;
  std::uint64_t seed = 0;
  bool record_rounds = false;
};

// What `bench` shares with it.
struct SpecBenchSize {
  int decode = 0;       // tokens of an answer, at most
  int repetitions = 0;  // of each prompt in each mode
  std::string plot = {};
  bool json = false;
};

// Adds --spec and what comes with it; all refuse to be given without it.
void AddSpecBenchOptions(const OptionSet& set, SpecBenchOptions& options, ModelOptions& model);

// Every prompt in every mode in turn, so that a noisy neighbour hits all alike. Prints a table, or
// the JSON object of spec_bench_report.h.
// InvalidArgument: modes that are not there. Internal: the text of a mode is not that of plain
// decoding, though it should be; printed all the same.
Status SpecBench(const ModelOptions& model, const SpecBenchOptions& options,
                 const SpecBenchSize& size);

}  // namespace thermocline::tools
