// A begun request: its state between turns.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/ffn_mode.h"
#include "engine/base/index.h"
#include "engine/exec/step_result.h"
#include "engine/exec/text_parts.h"
#include "engine/load/request_modes.h"
#include "engine/nn/kv_cache.h"
#include "engine/prefix/flash_prefixes.h"
#include "engine/sched/job.h"
#include "engine/sched/sequence_decoder.h"
#include "engine/sched/stop_matcher.h"
#include "engine/sched/text_pooling.h"
#include "engine/text/detokenizer.h"

namespace thermocline::sched {

// Converts tokens to the text that can no longer change.
class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, const Request& request);

  // Adds a token's text. Returns the text that is now certain, valid until the next call. `look`:
  // stop strings are matched already.
  const std::string& Push(int token, bool look);
  // Returns true if a stop string ended the text.
  bool stopped() const { return stops_.found() >= 0; }
  // Returns the index in Request::stop of the stop string found; -1 = none.
  int stop() const { return stops_.found(); }
  // Returns the withheld text, if no stop string ended the text.
  std::string Finish();

 private:
  text::Detokenizer detokenizer_;
  StopMatcher stops_;
  const std::vector<int>& shown_;  // of the request
  std::string decoded_, certain_;
};

// Returns the tokens that a request needs KV cache for when it begins.
std::size_t TokensAtOnce(const Request& request);

// The order in which sequences get memory: the first sequence of each tenant, then the second ones
// and so on; among these the oldest first.
struct Seniority {
  int rank = 0;  // sequences of its tenant that began before it and have not ended
  std::uint64_t number = 0;
  auto operator<=>(const Seniority&) const = default;
};

// Decode thread only. Does not move: its parts refer to the request in `job`.
struct Sequence {
  Sequence(Job begun, nn::KvPool& pool, int capacity, const text::Tokenizer& tokenizer,
           load::RequestModes modes_asked);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Seniority seniority() const { return {rank, job.number}; }
  int prompt_tokens() const { return usage.prompt_tokens; }
  // Tokens that must be in the KV cache before the next one can be computed.
  int wanted() const { return base::IntSize(tokens) - (usage.completion_tokens > 0 ? 1 : 0); }
  // Returns true if its memory was reclaimed: its KV cache is recomputed before it continues.
  bool dropped() const { return (started || suspended) && cache.length() == 0; }
  // Returns true if its next step decodes a token of the answer: its KV cache is complete.
  bool answers() const { return usage.completion_tokens > 0 && cache.length() == wanted(); }

  Job job;
  const load::RequestModes modes;
  const bool lossless;  // all its modes are lossless
  nn::KvCache cache;    // empty during its turns: the decode loop holds it then
  std::unique_ptr<SequenceDecoder> decoder;  // set while it answers in shared steps
  std::vector<int> tokens;                   // the prompt, then the generated tokens
  Usage usage;
  AnswerText text;
  std::vector<TokenChannel::Score> prompt_scores, scores;
  bool suspended = false;            // its memory was wanted for another one
  bool started = false;              // its first turn has begun
  int computed_to = 0;               // tokens that were ever computed or restored
  std::size_t embedded = 0;          // texts whose vectors were sent, with Request::embed
  TextPooling pooling;               // of the next text
  exec::TextProgress text_progress;  // of an encoder's next text
  int rank = 0;                      // as Seniority's
  std::uint64_t last_turn = 0;
  int prefilled_since = 0;  // tokens that it prefilled in shared steps since last_turn
  std::optional<SteadyClock::time_point> paused_since;  // set while its reader is slow
  std::optional<SteadyClock::time_point> prefill_since, decode_since;
  bool has_new_line = false;  // the answer contains a new line
  // Positions in the prompt at which a snapshot of the recurrent layers' state is kept for later
  // requests. 0: none.
  std::array<int, 2> marks = {};
  exec::StepError error;  // of its last step
  // Set while a prefix from flash is on its way into its KV cache.
  std::optional<prefix::Restoring> restoring;
  bool flash_failed = false;  // a block was damaged: its prefix comes from memory alone
};

}  // namespace thermocline::sched
