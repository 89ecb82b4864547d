// One generation, as the engine sees it: tokens in, limits, sampling.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/sampling_params.h"
#include "engine/api/speculation.h"

namespace thermocline {

// The way of making one vector from a text: from its tokens' last hidden states, behind the final
// norm.
enum class Pooling { kMean, kFirst, kLast };
// "mean", "cls" or "last", as embeddings' files and clients say.
const char* PoolingName(Pooling pooling);
std::optional<Pooling> ParsePooling(std::string_view name);

// Vectors of texts instead of an answer.
struct EmbedRequest {
  Pooling pooling = Pooling::kMean;
  std::vector<int> ends =
      {};  // of each text among the prompt's tokens, rising; the last is its size
};

struct Request {
  std::vector<int> prompt;  // token ids, at least one
  SamplingParams sampling;
  int max_tokens = 0;             // 0 = to the end of the context
  std::vector<std::string> stop;  // generation ends before the first of these in the text
  std::string ffn_mode = {};      // modes of the feed-forward networks (ffn_mode.h); "" = as loaded
  double kl_max = -1;             // of mode inputs, as FfnOptions; below 0 = as loaded
  std::optional<SpecMode> spec_mode = {};  // absent: as loaded
  int spec_tokens = -1;                // SpecOptions::tokens_max of this request; -1 = as loaded
  bool ignore_eos = false;             // go on after the model's stop tokens (benchmarks)
  std::vector<int> stop_tokens = {};   // generation ends at these, too, and does not show them
  std::vector<int> shown_tokens = {};  // control tokens whose text is part of the answer's
  // Strings that DRY's repetitions do not go across; absent: \n : " *
  std::optional<std::vector<std::string>> dry_breakers = {};
  // Log probabilities, of the model's own distribution, before all sampling: -1 = none, else of
  // each token and of this many most probable ones, at most kLogprobsMax.
  int logprobs = -1;
  bool prompt_logprobs = false;  // of the prompt's tokens, too; it is then computed whole
  bool prompt_only = false;      // nothing is generated
  // The prompt is texts one behind the other, each of which gets a vector; nothing is generated.
  std::optional<EmbedRequest> embed = {};
  bool progress = false;  // the channel tells how much of the prompt is read
  // Others wait for the same prompt: it goes to the prefix cache as soon as it is read.
  bool share_prompt = false;
  int priority = 0;               // kPriorityMin to kPriorityMax; higher ones go first
  std::string tenant = {};        // whose share of the time it takes
  std::string prefix_owner = {};  // whose prefixes it finds, and who finds its own (prefix_cache.h)
  // Limits of an answer in milliseconds, 0 = none: it ends with kLength when its prompt is computed
  // for so long, or, once it has a line's end, so long behind its first token. What was computed of
  // a prompt stays in the prefix cache. Source: llama.cpp's server.
  double prompt_ms_max = 0, predict_ms_max = 0;
  // The request ends with DeadlineExceeded when this has passed, also while it waits for flash.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

inline constexpr int kLogprobsMax = 20;
inline constexpr int kPriorityMin = -10, kPriorityMax = 10;

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
// "none", "stop", "length", "cancelled" or "error": as OpenAI names those that answers show.
const char* FinishReasonName(FinishReason reason);

// The progress of a request.
enum class Phase { kQueued, kPrefill, kDecode };
// "queued", "prefill" or "decode".
const char* PhaseName(Phase phase);

// The cause of ending a request that did not end by itself. kOtherChoice: another choice of the
// same request failed.
enum class CancelCause {
  kNone,
  kDisconnect,
  kDeadline,
  kApi,
  kShutdown,
  kSlowReader,
  kOtherChoice
};
// "disconnect", "deadline", "api", "shutdown", "slow_reader" or "other_choice".
const char* CancelCauseName(CancelCause cause);

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of them, found in the prefix cache
  int read_tokens = 0;    // of them, computed: fewer than the others if it ended before
  int completion_tokens = 0;
  int reasoning_tokens = 0;  // of them, about. The server's, not the engine's.
  double queue_s = 0;        // from Submit to the first prefill step
  double prefill_s = 0;
  double decode_s = 0;  // of the tokens after the first
  SpecUsage spec = {};
  Phase phase = Phase::kQueued;            // in which it ended
  CancelCause cause = CancelCause::kNone;  // of one that was cancelled
  int stop = -1;                           // that of Request::stop which ended it; -1 = none
  double cancel_s = 0;                     // from the cancellation to the end
  int preemptions = 0;                     // times it made way for others
  // The times of its first turn's begin and of its end; both zero if it ended in the queue.
  std::chrono::steady_clock::time_point begun_at = {}, ended_at = {};
  // The energy of the whole machine between the two; 0 = not known. The server's, not the engine's.
  double energy_j = 0;
};

}  // namespace thermocline
