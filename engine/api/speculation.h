// Speculative decoding as its users see it: what may be asked for, and what it does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

// Tokens of one draft, at most. Source: Duan et al. 2024 measure up to 20.
inline constexpr int kDraftTokensMax = 20;
// The same where neurons are skipped, come from flash, or a GPU computes: with the token before
// them they are what one step computes with the arithmetic and the rows of single tokens
// (ffn::kSparseTokensMax).
inline constexpr int kSparseDraftTokensMax = 15;
// Tokens guessed at the end of each branch, at most.
inline constexpr int kDraftWidthMax = 4;

enum class SpecMode {
  kOff,
  kSync,        // draft, then verify
  kBranch,      // while the target verifies, the draft goes on from the likeliest outcomes
  kExhaustive,  // ... from every accepted length; the target waits for all of them
  kAuto,        // what is fastest, by measurement; nothing where nothing pays
};

inline constexpr std::array<std::string_view, 5> kSpecModeNames = {"off", "sync", "branch",
                                                                   "exhaustive", "auto"};
inline const char* SpecModeName(SpecMode mode) {
  return kSpecModeNames[static_cast<std::size_t>(mode)].data();  // a literal
}
// InvalidArgument says what the name must be; the caller says of which option.
Result<SpecMode> ParseSpecMode(std::string_view name);
// True if it drafts while the target verifies, whatever the cost.
inline bool DraftsAhead(SpecMode mode) {
  return mode == SpecMode::kBranch || mode == SpecMode::kExhaustive;
}

// The source of drafts.
enum class SpecSource {
  kModel,  // a second, small model
  kNgram,  // what followed the same tokens earlier in the text
  kSelf,   // the target itself with its predictor and the neurons in memory; ahead if that is all
};
inline constexpr std::array<std::string_view, 3> kSpecSourceNames = {"model", "ngram", "self"};
inline std::string_view SpecSourceName(SpecSource source) {
  return kSpecSourceNames[static_cast<std::size_t>(source)];
}

// kSameText: the target's own draw decides, so that the text of a seed is that of plain decoding;
// kRejection: modified rejection sampling, which accepts more, and the text of a seed depends on
// the draft. The distribution is the target's in both.
enum class SpecAcceptance { kSameText, kRejection };
inline constexpr std::array<std::string_view, 2> kSpecAcceptanceNames = {"same-text", "rejection"};

struct SpecOptions {
  SpecMode mode = SpecMode::kOff;
  std::optional<SpecSource> source = {};
  std::string draft = {};  // path of the draft model, or the name of a built-in one
  bool required = true;    // false: serve without the draft model if it cannot be loaded
  int tokens_max = 8;      // of a draft; in mode auto the controller chooses up to this
  bool fixed = false;      // draft tokens_max tokens always, whatever it costs
  int width = 2;           // tokens guessed at the end of each branch
  int threads = 0;  // kernel threads of the draft model, or of self beside the target; 0 = by
                    // measurement
  SpecAcceptance acceptance = SpecAcceptance::kSameText;
  int head = 0;  // the draft's output head: so many of the first tokens; 0 = all
  // self: added to what the predictor must reach, in units of its score (engine/api/ffn_mode.h);
  // above 0 drafts read less and miss more.
  double self_shift = 0.0;
  int rounds_max = 0;  // verifications that SpecStats::rounds records, the first ones

  // model if there is one, else ngram, unless it is given.
  SpecSource chosen_source() const {
    return source.value_or(draft.empty() ? SpecSource::kNgram : SpecSource::kModel);
  }
};

// One verification, as a recorded trace has it.
struct SpecRound {
  int n = 0, k = 0;  // drafted tokens, accepted ones
  int rank = 0;  // of the token behind among the draft's guesses: 1 the first; 0 = not there; -1 =
                 // none made
  std::array<std::uint8_t, kDraftTokensMax> confidence = {};  // [n] spec::Proposal::confidence
};

// Totals since the start, but for the state at the end. What a request added is there when its
// channel ends.
struct SpecStats {
  bool used = false;
  std::string mode = {}, source = {}, draft = {};  // draft: path
  std::string fallback = {};  // why there is no draft model though one was asked for; "" = there is
  // self: why it cannot draft while the target verifies; "" = it can, as other sources.
  std::string not_ahead = {};
  std::int64_t drafts = 0;                                     // verified
  std::int64_t draft_tokens = 0;                               // verified
  std::int64_t accepted_tokens = 0;                            // of them
  std::array<std::int64_t, kDraftTokensMax> accepted_at = {};  // by position in the draft
  std::int64_t plain_steps = 0;                                // steps without a draft
  std::int64_t drafted_tokens = 0;                             // all, on every branch
  std::int64_t wasted_tokens = 0;  // of them, dropped unverified or refused
  // Outcomes of a verification by the accepted length: whether its branch was drafted by then.
  std::array<std::int64_t, kDraftTokensMax + 1> branch_hits = {}, branch_misses = {};
  double draft_s = 0;   // drafting, on whatever thread
  double verify_s = 0;  // the target's steps, plain ones too
  double wait_s = 0;    // the target waited for the draft
  // State: what the controller knows and does now.
  std::string mode_now = {};               // off, sync, branch or exhaustive
  int draft_length = 0;                    // of the last draft
  double acceptance = 0;                   // p of phi
  double phi_floor = 0;                    // c of phi
  double draft_token_s = 0;                // time of a drafted token
  double verify_1_s = 0;                   // time of the target's step of one token
  double verify_per_token_s = 0;           // of each further token of a step
  double phi_p = 0, phi_a = 0, phi_c = 0;  // phi, fitted; as spec::Phi
  std::array<double, kDraftTokensMax + 1> verify_step_s = {};  // of a step of [i] + 1 tokens
  double draft_slowdown = 1, verify_slowdown = 1;  // of either while both work; 1 = none
  double round_overhead_s = 0;                     // of a round beside drafting and verifying
  // Measured, totals: verifications of n tokens that accepted k, [n][k]; and what rank the token
  // behind had among the draft's guesses, 0 = none of them: after a refused token, after a draft
  // that was accepted whole.
  std::array<std::array<std::int64_t, kDraftTokensMax + 1>, kDraftTokensMax + 1> outcomes = {};
  std::array<std::int64_t, 6> correction_ranks = {}, bonus_ranks = {};
  std::vector<SpecRound> rounds = {};  // SpecOptions::rounds_max of them
};

// The counts of one answer.
struct SpecUsage {
  int drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  int branch_hits = 0, branch_misses = 0;
  double wait_s = 0;

  SpecUsage& operator+=(const SpecUsage& more) {
    drafts += more.drafts;
    draft_tokens += more.draft_tokens;
    accepted_tokens += more.accepted_tokens;
    branch_hits += more.branch_hits;
    branch_misses += more.branch_misses;
    wait_s += more.wait_s;
    return *this;
  }
};

}  // namespace thermocline
