// Speculative decoding as its users see it: its options and its figures.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/status.h"

namespace thermocline {

// Maximum number of tokens of one draft. Source: Duan et al. 2024 measure up to 20.
inline constexpr int kDraftTokensMax = 20;
// The same limit if neurons are skipped or come from flash, or if a GPU computes: the draft and the
// token before it are the most tokens that one step computes with the arithmetic and the rows of
// single tokens (ffn::kSparseTokensMax).
inline constexpr int kSparseDraftTokensMax = 15;
// Maximum number of tokens guessed at the end of each branch.
inline constexpr int kDraftWidthMax = 4;

enum class SpecMode {
  kOff,
  kSync,        // draft, then verify
  kBranch,      // while the target verifies, the draft continues from the likeliest outcomes
  kExhaustive,  // ... from every accepted length; the target waits until all are drafted
  kAuto,        // the fastest mode by measurement; off if none is faster
};

inline constexpr std::array<std::string_view, 5> kSpecModeNames = {"off", "sync", "branch",
                                                                   "exhaustive", "auto"};
inline const char* SpecModeName(SpecMode mode) {
  return kSpecModeNames[base::Index(mode)].data();  // a literal
}
// InvalidArgument lists the names; the caller adds the option.
Result<SpecMode> ParseSpecMode(std::string_view name);
// True if the mode drafts while the target verifies.
inline bool DraftsAhead(SpecMode mode) {
  return mode == SpecMode::kBranch || mode == SpecMode::kExhaustive;
}

// The source of drafts.
enum class SpecSource {
  kModel,  // a second, small model
  kNgram,  // tokens that followed the same tokens earlier in the text
  kSelf,   // the target with its predictor and the neurons in memory; ahead only if all neurons are
};
inline constexpr std::array<std::string_view, 3> kSpecSourceNames = {"model", "ngram", "self"};
inline std::string_view SpecSourceName(SpecSource source) {
  return kSpecSourceNames[base::Index(source)];
}

// kSameText: the target's own draw decides, so that a seed gives the same text as plain decoding;
// kRejection: modified rejection sampling, which accepts more, and the text of a seed depends on
// the draft. The distribution is the target's in both.
enum class SpecAcceptance { kSameText, kRejection };
inline constexpr std::array<std::string_view, 2> kSpecAcceptanceNames = {"same-text", "rejection"};

struct SpecOptions {
  SpecMode mode = SpecMode::kOff;
  std::optional<SpecSource> source = {};
  std::string draft = {};  // path of the draft model, or the name of a built-in one
  bool required = true;    // false: serve without the draft model if loading it fails
  int tokens_max = 8;      // of a draft; in mode auto the controller chooses up to this
  bool fixed = false;      // always draft tokens_max tokens, regardless of the cost
  int width = 2;           // tokens guessed at the end of each branch
  int threads = 0;  // kernel threads of the draft model, or of self beside the target; 0 = by
                    // measurement
  SpecAcceptance acceptance = SpecAcceptance::kSameText;
  int head = 0;  // the draft's output head: the number of first tokens it covers; 0 = all
  // self: added to the predictor's threshold, in units of its score (engine/api/ffn_mode.h); above
  // 0 drafts read less and miss more.
  double self_shift = 0.0;
  int rounds_max = 0;  // number of verifications recorded in SpecStats::rounds, from the first

  // The given source; by default kModel if there is a draft model, otherwise kNgram.
  SpecSource chosen_source() const {
    return source.value_or(draft.empty() ? SpecSource::kNgram : SpecSource::kModel);
  }
};

// One verification, as stored in a recorded trace.
struct SpecRound {
  int n = 0, k = 0;  // drafted tokens, accepted ones
  int rank = 0;      // of the next token among the draft's guesses: 1 the first; 0 = none of them;
                     // -1 = no guesses
  std::array<std::uint8_t, kDraftTokensMax> confidence = {};  // [n] spec::Proposal::confidence
};

// Totals since the start, and the state at the end. A request's contribution is included when its
// channel ends.
struct SpecStats {
  bool used = false;
  std::string mode = {}, source = {}, draft = {};  // draft: path
  std::string fallback = {};  // why there is no draft model though one was requested; "" = there is
  // self: the reason why it cannot draft while the target verifies; "" = it can, like other
  // sources.
  std::string not_ahead = {};
  std::int64_t drafts = 0;                                     // verified
  std::int64_t draft_tokens = 0;                               // verified
  std::int64_t accepted_tokens = 0;                            // of draft_tokens
  std::array<std::int64_t, kDraftTokensMax> accepted_at = {};  // by position in the draft
  std::int64_t plain_steps = 0;                                // steps without a draft
  std::int64_t drafted_tokens = 0;                             // all, on every branch
  std::int64_t wasted_tokens = 0;  // of these, dropped unverified or rejected
  // Verifications by accepted length: the branch of that length was already drafted (hit), or not.
  std::array<std::int64_t, kDraftTokensMax + 1> branch_hits = {}, branch_misses = {};
  double draft_s = 0;   // drafting, on any thread
  double verify_s = 0;  // the target's steps, plain ones too
  double wait_s = 0;    // the target waited for the draft
  // State: the controller's current estimates and decisions.
  std::string mode_now = {};               // off, sync, branch or exhaustive
  int draft_length = 0;                    // of the last draft
  double acceptance = 0;                   // p of phi
  double phi_floor = 0;                    // c of phi
  double draft_token_s = 0;                // time of a drafted token
  double verify_1_s = 0;                   // time of the target's step of one token
  double verify_per_token_s = 0;           // of each further token of a step
  double phi_p = 0, phi_a = 0, phi_c = 0;  // phi, fitted; as spec::Phi
  std::array<double, kDraftTokensMax + 1> verify_step_s = {};  // of a step of [i] + 1 tokens
  double draft_slowdown = 1, verify_slowdown = 1;  // slowdown of each while both work; 1 = none
  double round_overhead_s = 0;                     // time of a round besides drafting and verifying
  // Measured totals: verifications of n tokens that accepted k, [n][k]; and the rank of the next
  // token among the draft's guesses, 0 = not among them: after a rejected token, and after a fully
  // accepted draft.
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
