// Figures of one layer's feed-forward network, for metrics.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/api/ffn_mode.h"
#include "engine/base/ratio.h"

namespace thermocline {

// The most recent audits of a layer in one mode; tokens = 0: there were none.
struct RecentAudits {
  std::int64_t tokens = 0;
  double precision = 1, recall = 1;  // the positive class is ACTIVE
  double missed_share = 0;           // of |h| ||d||
};

// Mode inputs, for the matrices that multiply the same input. Sums since the start.
struct InputStats {
  std::int64_t tokens = 0, kept = 0, all = 0;  // inputs kept, and all inputs
  // Summed over tokens: the omitted share of the inputs' squared norm.
  double missed = 0;
};
inline constexpr std::array<std::string_view, 4> kInputStatNames = {"qkv", "attention_output",
                                                                    "gate_up", "down"};

// Sums over decoding steps since the start, and the state of prediction.
struct FfnLayerStats {
  FfnMode mode = FfnMode::kDense;      // of the last token
  std::int64_t tokens = 0, steps = 0;  // tokens decoded and kept; steps with any such token
  std::int64_t neurons = 0;            // of the network; for experts, of one token's experts
  std::int64_t gate_rows = 0, up_rows = 0, down_rows = 0;  // read; once a step
  std::int64_t bytes = 0;                                  // read, predictors included
  std::int64_t predictor_bytes = 0;
  std::int64_t dense_bytes = 0;  // bytes that dense steps would have read
  // Multiply-adds of the rows, of dense tokens, and of predictors; for predictors, words of 32
  // signs count too.
  std::int64_t operations = 0, dense_operations = 0, predictor_operations = 0;
  // Audits; the positive class is ACTIVE.
  std::int64_t audited_tokens = 0, tp = 0, fp = 0, fn = 0, tn = 0;
  double missed_mass = 0, total_mass = 0;  // of |h| ||d||
  double audit_s = 0;                      // seconds spent on audits
  // On predicted tokens, including a shadow predictor's.
  std::array<RecentAudits, 2> recent_sign = {}, recent_low_rank = {};
  std::array<InputStats, kInputStatNames.size()> inputs = {};
  // Controller.
  bool controlled = false, frozen = false;
  double shift = 0;   // of the predictor's threshold
  double recall = 1;  // mean since the last adjustment
  std::int64_t moves = 0;
};

// Bytes per decoded token that the layers did not read, compared with dense computation.
inline double SavedBytesPerToken(std::span<const FfnLayerStats> layers) {
  double saved = 0;
  for (const FfnLayerStats& s : layers) {
    if (s.tokens > 0) saved += base::Ratio(s.dense_bytes - s.bytes, s.tokens);
  }
  return saved;
}

}  // namespace thermocline
