// A request that is begun: what is its own while others take their turns.
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
#include "engine/load/request_modes.h"
#include "engine/nn/kv_cache.h"
#include "engine/sched/job.h"
#include "engine/sched/lane.h"
#include "engine/sched/stop_matcher.h"
#include "engine/sched/text_pooling.h"
#include "engine/text/detokenizer.h"

namespace thermocline::sched {

// From tokens to the text that is certain.
class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, const Request& request);

  // Adds a token's text; what is certain now, until the next call. `look`: whether stop strings
  // count yet.
  const std::string& Push(int token, bool look);
  // True if a stop string ended the text.
  bool stopped() const { return stops_.found() >= 0; }
  // Which of Request::stop it was; -1 = none.
  int stop() const { return stops_.found(); }
  // Returns the text that was held back, when no stop string ended it.
  std::string Finish();

 private:
  text::Detokenizer detokenizer_;
  StopMatcher stops_;
  const std::vector<int>& shown_;  // of the request
  std::string decoded_, certain_;
};

// Tokens whose keys and values a request that begins needs at once.
std::size_t TokensAtOnce(const Request& request);

// Decode thread only. Does not move: its parts refer to the request in `job`.
// Memory goes to the first sequence of each tenant, then to the second ones and so on; among these
// to the oldest.
struct Seniority {
  int rank = 0;  // sequences of its tenant that were begun before it and have not ended
  std::uint64_t number = 0;
  auto operator<=>(const Seniority&) const = default;
};

struct Sequence {
  Sequence(Job begun, nn::KvPool& pool, int capacity, const text::Tokenizer& tokenizer,
           load::RequestModes modes_asked);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Seniority seniority() const { return {rank, job.number}; }
  int prompt_tokens() const { return usage.prompt_tokens; }
  // Tokens whose keys and values the next token needs.
  int wanted() const { return base::IntSize(tokens) - (usage.completion_tokens > 0 ? 1 : 0); }
  // True if others took its memory: it is computed anew before it goes on.
  bool dropped() const { return started && cache.length() == 0; }
  // True if its next step makes a token of the answer: all before it is computed.
  bool answers() const { return usage.completion_tokens > 0 && cache.length() == wanted(); }

  Job job;
  const load::RequestModes modes;
  const bool lossless;         // its modes
  nn::KvCache cache;           // empty during its turns: then the loop has it
  std::unique_ptr<Lane> lane;  // the shared loop's, while it answers there
  std::vector<int> tokens;     // the prompt, then what was generated
  Usage usage;
  AnswerText text;
  std::vector<TokenChannel::Score> prompt_scores, scores;
  bool started = false;      // a turn of it has begun
  int computed_to = 0;       // tokens that were computed or found once
  std::size_t embedded = 0;  // texts whose vectors were given, with Request::embed
  TextPooling pooling;       // of the next one
  int rank = 0;              // as Seniority's
  std::uint64_t last_turn = 0;
  int read_since = 0;  // tokens that it read in shared steps since last_turn
  std::optional<SteadyClock::time_point> paused_since;  // its reader is slow
  std::optional<SteadyClock::time_point> prefill_since, decode_since;
  bool has_new_line = false;  // in the answer
  // Places in the prompt at which a snapshot of the recurrent layers' state is kept: others will go
  // on there. 0: there is none.
  std::array<int, 2> marks = {};
  exec::StepError error;  // of its last step
};

}  // namespace thermocline::sched
