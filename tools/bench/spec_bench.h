// `thermocline bench --spec`: compares the modes of speculative decoding, and measures the pair of
// target and draft.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "tools/common/model_options.h"

namespace thermocline::tools {

struct SpecBenchOptions {
  bool wanted = false;  // --spec was given
  std::string modes = {}, prompts = {};
  double temperature = 0;
  std::uint64_t seed = 0;
  bool record_rounds = false;
};

// The options that `bench` shares with --spec.
struct SpecBenchSize {
  int decode = 0;       // tokens of an answer, at most
  int repetitions = 0;  // of each prompt in each mode
  std::string plot = {};
  bool json = false;
};

// Adds --spec and its options, which require it.
void AddSpecBenchOptions(const OptionSet& set, SpecBenchOptions& options, ModelOptions& model);

// Runs every prompt in every mode, interleaved so that a noisy neighbor slows all alike. Prints a
// table, or the JSON object of spec_bench_report.h. InvalidArgument: an unavailable mode. Internal:
// a mode's text differs from plain decoding's, though it must not; the report is printed anyway.
Status SpecBench(const ModelOptions& model, const SpecBenchOptions& options,
                 const SpecBenchSize& size);

}  // namespace thermocline::tools
