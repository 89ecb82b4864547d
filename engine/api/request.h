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

// The method of making one vector from a text: pools the last hidden states of its tokens, after
// the final norm.
enum class Pooling { kMean, kFirst, kLast, kRank };
// kRank: a score of a pair of texts instead of a vector, of models that rank.
// "mean", "cls", "last" or "rank", as in embedding models' files and clients' requests.
const char* PoolingName(Pooling pooling);
std::optional<Pooling> ParsePooling(std::string_view name);

// Embeddings of texts instead of an answer.
struct EmbedRequest {
  Pooling pooling = Pooling::kMean;
  std::vector<int> ends =
      {};  // end of each text among the prompt's tokens, ascending; the last is the prompt's size
};

struct Request {
  std::vector<int> prompt;  // token ids, at least one
  SamplingParams sampling;
  int max_tokens = 0;             // 0 = to the end of the context
  std::vector<std::string> stop;  // generation ends before the first of these in the text
  std::string ffn_mode = {};      // modes of the feed-forward networks (ffn_mode.h); "" = as loaded
  double kl_max = -1;             // of mode inputs, as FfnOptions; below 0 = as loaded
  // The factor of each LoRA adapter of the model, 0 = not applied; absent: as loaded.
  std::optional<std::vector<float>> adapter_scales = {};
  std::optional<SpecMode> spec_mode = {};  // absent: as loaded
  int spec_tokens = -1;                // SpecOptions::tokens_max of this request; -1 = as loaded
  bool ignore_eos = false;             // go on after the model's stop tokens (benchmarks)
  std::vector<int> stop_tokens = {};   // generation also ends at these, and does not output them
  std::vector<int> shown_tokens = {};  // control tokens whose text is part of the answer
  // Strings across which DRY does not look for repetitions; absent: \n : " *
  std::optional<std::vector<std::string>> dry_breakers = {};
  // Log probabilities of the model's own distribution, before all sampling: -1 = none, otherwise of
  // each token and of this many most probable ones, at most kLogprobsMax.
  int logprobs = -1;
  bool prompt_logprobs = false;  // also of the prompt's tokens; the whole prompt is then computed
  bool prompt_only = false;      // nothing is generated
  // The prompt consists of concatenated texts, each of which gets a vector; nothing is generated.
  std::optional<EmbedRequest> embed = {};
  bool progress = false;  // the channel reports the progress of prefill
  // Other requests wait for the same prompt: it is put into the prefix cache right after prefill.
  bool share_prompt = false;
  int priority = 0;               // kPriorityMin to kPriorityMax; higher ones go first
  std::string tenant = {};        // the tenant whose share of the time it uses
  std::string prefix_owner = {};  // requests of one owner share prefixes (prefix_cache.h)
  // Time limits in milliseconds, 0 = none: the answer ends with kLength if prefill takes longer
  // than the first or, once the answer contains a line end, if decoding takes longer than the
  // second. The computed part of a prompt stays in the prefix cache. Source: llama.cpp's server.
  double prompt_ms_max = 0, predict_ms_max = 0;
  // The request ends with DeadlineExceeded at this time, even while it waits for flash.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

inline constexpr int kLogprobsMax = 20;
inline constexpr int kPriorityMin = -10, kPriorityMax = 10;

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
// "none", "stop", "length", "cancelled" or "error"; OpenAI's names where it has them.
const char* FinishReasonName(FinishReason reason);

// The progress of a request.
enum class Phase { kQueued, kPrefill, kDecode };
// "queued", "prefill" or "decode".
const char* PhaseName(Phase phase);

// The reason for cancelling a request. kOtherChoice: another choice of the same request failed.
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
  int cached_tokens = 0;  // the part of the prompt found in the prefix cache
  int flash_tokens = 0;   // the part of these that was read from flash
  // The part of the prompt whose tokens are those of remembered answers. Set by the server.
  int replayed_tokens = 0;
  // Position of the prompt's first token that differs from a cached sequence with the same tokens
  // before it; -1: none does.
  int cache_miss_at = -1;
  int prefill_tokens = 0;  // the computed part; less than the rest if the request ended early
  int completion_tokens = 0;
  int reasoning_tokens = 0;  // estimated part of these. Set by the server.
  double queue_s = 0;        // from Submit to the first prefill step
  double prefill_s = 0;
  double restore_s = 0;  // part of it: reading a prefix from flash
  double decode_s = 0;   // from the second token to the last
  SpecUsage spec = {};
  Phase phase = Phase::kQueued;            // the phase in which it ended
  CancelCause cause = CancelCause::kNone;  // the cause if it was cancelled
  int stop = -1;                           // the index in Request::stop that ended it; -1 = none
  double cancel_s = 0;                     // from the cancellation to the end
  int preemptions = 0;                     // times it was preempted by other requests
  // Start of its first turn, and its end; both zero if it ended in the queue.
  std::chrono::steady_clock::time_point begun_at = {}, ended_at = {};
  // Energy of the whole machine between the two; 0 = unknown. Set by the server.
  double energy_j = 0;
};

}  // namespace thermocline
