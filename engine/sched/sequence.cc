#include "engine/sched/sequence.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::sched {
namespace {

bool AtTextStart(const text::Tokenizer& tokenizer, const Request& request) {
  return request.prompt.size() == 1 && request.prompt[0] == tokenizer.vocabulary().bos;
}

// Returns the maximum length of the sequence, in tokens.
std::size_t LengthMax(const Request& request, int capacity) {
  const std::size_t room = capacity;
  if (request.max_tokens == 0) return room;
  return std::min(room, request.prompt.size() + request.max_tokens);
}

}  // namespace

std::size_t TokensAtOnce(const Request& request) {
  if (!request.embed.has_value()) return request.prompt.size();
  int begin = 0, longest = 0;
  for (const int end : request.embed->ends) {
    longest = std::max(longest, end - begin);
    begin = end;
  }
  return longest;
}

AnswerText::AnswerText(const text::Tokenizer& tokenizer, const Request& request)
    : detokenizer_(tokenizer, AtTextStart(tokenizer, request)),
      stops_(request.stop),
      shown_(request.shown_tokens) {
  decoded_.reserve(1024);
  certain_.reserve(1024);
}

const std::string& AnswerText::Push(int token, bool look) {
  decoded_.clear();
  certain_.clear();
  const bool shown = std::find(shown_.begin(), shown_.end(), token) != shown_.end();
  detokenizer_.Push(token, decoded_, shown);
  if (look) {
    stops_.Push(decoded_, certain_);
  } else {
    certain_ = decoded_;
  }
  return certain_;
}

std::string AnswerText::Finish() {
  std::string rest;
  if (stopped()) return rest;
  decoded_.clear();
  detokenizer_.Finish(decoded_);
  if (!stops_.Push(decoded_, rest)) stops_.Finish(rest);
  return rest;
}

Sequence::Sequence(Job begun, nn::KvPool& pool, int capacity, const text::Tokenizer& tokenizer,
                   load::RequestModes modes_asked)
    : job(std::move(begun)),
      modes(std::move(modes_asked)),
      lossless(std::all_of(modes.layers.begin(), modes.layers.end(), IsLossless)),
      cache(pool, capacity),
      text(tokenizer, job.request) {
  usage.prompt_tokens = base::IntSize(job.request.prompt);
  if (job.request.embed.has_value()) return;  // its texts are prefilled one by one
  tokens.reserve(LengthMax(job.request, capacity) + 1);
  tokens.assign(job.request.prompt.begin(), job.request.prompt.end());
  if (job.request.logprobs < 0) return;
  scores.reserve(job.request.logprobs + 1U);
}

}  // namespace thermocline::sched
