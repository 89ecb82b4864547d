#include "server/http/answer.h"

#include <algorithm>

#include "engine/base/index.h"
#include "server/core/refusal_table.h"

namespace thermocline::http {
namespace {

constexpr std::size_t kEventBytesMax = 16 << 10;  // of one output, about

openai::ApiError ErrorOf(const TokenChannel::Update& update) {
  openai::ApiError error = openai::FromStatus(server::FailureOf(update));
  if (update.reason == FinishReason::kCancelled)
    error.details.emplace_back("cause", CancelCauseName(update.usage.cause));
  return error;
}

}  // namespace

Answer::Answer(server::Service& service, const ResponseHead& head, const GenerationPlan& plan)
    : service_(service),
      head_(head),
      answer_(plan.answer),
      stream_(plan.stream),
      progress_(plan.submission.asked().request.progress),
      choices_per_prompt_(plan.submission.choices()),
      logprobs_(plan.submission.asked().request.logprobs),
      echoes_(plan.echoes),
      choices_(plan.submission.requests().size() * choices_per_prompt_) {
  TokenChannel::ReserveBuffers(update_);
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  const std::vector<Request>& requests = plan.submission.requests();
  for (const Request& request : requests) {
    prompt_tokens_.push_back(base::IntSize(request.prompt));
    first_tokens_.push_back(request.prompt[0]);
  }
  if (answer_.chat || logprobs_ < 0) return;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const std::vector<int>& prompt = requests[i / choices_per_prompt_].prompt;
    const bool at_start =
        !echoes_.empty() || (prompt.size() == 1 && prompt[0] == tokenizer.vocabulary().bos);
    choices_[i].legacy.emplace(tokenizer, logprobs_, at_start);
  }
}

Result<std::unique_ptr<Answer>> Answer::Start(server::Service& service, const ResponseHead& head,
                                              GenerationPlan plan, std::function<void()> on_ready) {
  std::unique_ptr<Answer> answer(new Answer(service, head, plan));
  ASSIGN_OR_RETURN(answer->generation_, plan.submission.Start(std::move(on_ready)));
  return answer;
}

Answer::Output Answer::Take() {
  Output output;
  const int count = base::IntSize(choices_);
  for (int i = 0; i < count && !ended_ && output.events.size() < kEventBytesMax; ++i) {
    const int index = next_;
    next_ = (next_ + 1) % count;
    if (generation_->Take(index, update_)) Hear(index, output);
  }
  if (!output.events.empty()) begun_ = true;
  return output;
}

void Answer::Leave(CancelCause cause) {
  if (!ended_) generation_->Cancel(cause);
}

std::string Answer::KeepAlive() {
  if (!stream_ || ended_) return {};
  begun_ = true;
  return openai::kKeepAliveEvent;
}

void Answer::Hear(int index, Output& output) {
  const bool complete =
      update_.reason == FinishReason::kStop || update_.reason == FinishReason::kLength;
  if (update_.finished && !complete) return Fail(output);
  if (progress_ && update_.prompt_read >= 0 && index % choices_per_prompt_ == 0)
    ReportProgress(index, output);
  Choice& choice = choices_[index];
  // A prompt's scores may come before the first token.
  const bool says = !update_.text.empty() || !update_.tokens.empty() ||
                    !update_.prompt_scores.empty() || update_.finished;
  std::string text;
  if (says && !choice.begun) {
    if (stream_ && answer_.chat) output.events += openai::RoleEvent(answer_, index);
    text = Begin(index, choice);
  }
  text += update_.text;
  if (choice.legacy.has_value()) choice.legacy->Add(update_.scores);
  if (!stream_) {
    choice.whole.text += text;
    choice.scores.insert(choice.scores.end(), update_.scores.begin(), update_.scores.end());
  } else if (!text.empty() || (logprobs_ >= 0 && says && !update_.scores.empty())) {
    choice.scores = update_.scores;
    output.events += openai::ContentEvent(answer_, index, text, LogprobsOf(choice));
  }
  if (update_.finished) FinishChoice(index, output);
}

std::string Answer::Begin(int index, Choice& choice) {
  choice.begun = true;
  if (echoes_.empty()) return {};
  const std::size_t prompt = index / choices_per_prompt_;
  if (choice.legacy.has_value()) {
    choice.legacy->AddFirst(first_tokens_[prompt], !echoes_[prompt].bos_added);
    choice.legacy->Add(update_.prompt_scores);
  }
  return echoes_[prompt].text;
}

Json Answer::LogprobsOf(Choice& choice) {
  if (logprobs_ < 0) return {};
  if (choice.legacy.has_value()) return choice.legacy->Take();
  return openai::ChatLogprobs(service_.engine()->tokenizer(), logprobs_, choice.scores);
}

void Answer::ReportProgress(int index, Output& output) {
  const std::chrono::duration<double, std::milli> since =
      std::chrono::steady_clock::now() - head_.arrived;
  output.events +=
      openai::ProgressEvent(answer_, {.index = index,
                                      .total = prompt_tokens_[index / choices_per_prompt_],
                                      .cached = update_.prompt_cached,
                                      .read = update_.prompt_read,
                                      .ms = since.count()});
}

void Answer::FinishChoice(int index, Output& output) {
  Choice& choice = choices_[index];
  choice.usage = update_.usage;
  choice.whole.reason = update_.reason;
  ended_ = output.last = generation_->finished();
  if (stream_) {
    const Usage total = ended_ ? Total() : Usage();
    const bool figures = ended_ && !answer_.include_usage;
    output.events +=
        openai::FinishEvent(answer_, index, update_.reason, figures ? &total : nullptr);
    if (!ended_) return;
    if (answer_.include_usage) output.events += openai::UsageEvent(answer_, total);
    output.events += openai::kDoneEvent;
  } else if (ended_) {
    std::vector<openai::WholeChoice> whole;
    for (Choice& each : choices_) {
      each.whole.logprobs = LogprobsOf(each);
      whole.push_back(std::move(each.whole));
    }
    output.response =
        JsonResponse(head_, 200, openai::WholeAnswer(answer_, std::move(whole), Total()));
  }
}

// One choice that fails ends them all. What was not begun is refused with a status of its own; a
// stream ends with an error and no [DONE], not to be mistaken for success.
void Answer::Fail(Output& output) {
  ended_ = output.last = true;
  generation_->Cancel(CancelCause::kOtherChoice);
  if (begun_) {
    output.failed = true;
    output.events += openai::DataEvent(ErrorOf(update_).ToJson());
    return;
  }
  output.events.clear();
  const bool wait = server::RowOf(server::FailureOf(update_)).retry_after;
  output.response = ErrorResponse(head_, ErrorOf(update_), wait ? service_.RetryAfterSeconds() : 0);
}

// Prompts count once, however many choices they have.
Usage Answer::Total() const {
  Usage total;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Usage& usage = choices_[i].usage;
    if (i % choices_per_prompt_ == 0) {
      total.prompt_tokens += usage.prompt_tokens;
      total.cached_tokens += usage.cached_tokens;
    }
    total.completion_tokens += usage.completion_tokens;
    total.queue_s = std::max(total.queue_s, usage.queue_s);
    total.prefill_s += usage.prefill_s;
    total.decode_s += usage.decode_s;
    total.preemptions += usage.preemptions;
    total.energy_j = std::max(total.energy_j, usage.energy_j);  // the last one has the whole time
    total.spec += usage.spec;
  }
  return total;
}

}  // namespace thermocline::http
