// The report of `bench --spec`: a table, JSON and SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/engine.h"
#include "engine/spec/phi.h"
#include "tools/common/samples.h"

namespace thermocline::tools {

// One prompt in one mode.
struct SpecBenchCell {
  Samples tokens_per_s = {};  // of the tokens after the first, by repetition
  Samples ratio = {};         // to mode off in the same repetition
  SpecUsage usage = {};       // sums
};

struct SpecBenchMode {
  SpecMode mode = SpecMode::kOff;
  std::vector<SpecBenchCell> prompts = {};
  double decode_s = 0;                                 // of all runs
  std::int64_t drafted_tokens = 0, wasted_tokens = 0;  // as SpecStats
  std::optional<bool> text_equal = {};  // equal to the text of mode off; nullopt if it need not be
};

struct SpecBenchReport {
  EngineStats stats;  // at the end
  int decode = 0, repetitions = 0;
  double temperature = 0;
  std::vector<SpecBenchMode> modes = {};  // off first
  SpecStats counts = {};                  // of the measured runs: at the end, minus at the start
  // The draft length with the most drafted tokens, 0 = none, and phi fitted to its outcomes. Other
  // lengths are left out: a controller that drafts short when it is unsure, or sure, makes them
  // another sample.
  int histogram_n = 0;
  spec::Phi phi = {};
};

// {"machine", "model", "draft": null without a draft model, "source", "decode", "repetitions",
// "temperature", "prompts",
//  "modes": [{"mode", "tokens_per_s": {"median", "min", "max"} over runs,
//             "ratio": the same over prompts, each by the median of its repetitions,
//             "accepted_mean": tokens of a draft, "acceptance": of a drafted token, "hit_rate": of
//             branches, "wait_share": of decoding time, "wasted_share": of drafted tokens,
//             "text_equal": true, false or null}],
//  "histogram_n": the draft length with the most drafted tokens, "accepted_histogram",
//  "phi_histogram": [n + 1] shares of its accepted lengths, measured and fitted, "pair":
//  {"draft_token_s", "verify_s": [16] by tokens of a step, "phi": {"p", "a", "c"},
//           "correction_hits": [4] by the guess, or [], "bonus_hit", "draft_slowdown",
//           "verify_slowdown", "round_overhead_s"}, null without drafts,
//  "rounds": [{"n", "k", "rank", "confidence": [n]}], empty if none were recorded}
// Shares of 0 are null.
Json SpecBenchJson(const SpecBenchReport& report);

void PrintSpecBench(const SpecBenchReport& report);

// An SVG of all modes: accepted lengths, measured and fitted; tokens per draft and speed by prompt.
std::string SpecBenchSvg(const SpecBenchReport& report);

}  // namespace thermocline::tools
