#include "server/http/generated_answer.h"

#include <algorithm>

#include "engine/base/index.h"
#include "server/core/refusal_table.h"

namespace thermocline::http {
namespace {

constexpr std::size_t kEventBytesMax = 16 << 10;  // approximate limit of one output
// A byte of log probabilities makes 9 bytes of text (measured), a byte of an embedding 21.
constexpr std::size_t kTextOfByteMax = 24;
constexpr std::size_t kEscapedByteMax = 6;  // of a byte of text, as JSON
constexpr std::size_t kRepeats = 4;         // of the output in a stream's last events, at most

}  // namespace

GeneratedAnswer::GeneratedAnswer(server::Service& service, const ResponseHead& head,
                                 GenerationPlan& plan)
    : service_(service),
      head_(head),
      format_(std::move(plan.format)),
      stream_(plan.stream),
      progress_(plan.submission.generation_request().request.progress),
      choices_per_prompt_(plan.submission.choices()),
      reasoning_budget_(plan.submission.reasoning_budget()),
      replayed_(plan.submission.replayed()),
      places_(plan.submission.places()),
      parts_of_(plan.submission.parts()),
      choices_(plan.submission.requests().size() * choices_per_prompt_),
      kept_bytes_(plan.submission.KeptBytes() + format_->EchoBytes()),
      kept_(service.request_memory(), head.tenant) {
  TokenChannel::ReserveBuffers(update_);
  for (const Request& request : plan.submission.requests())
    prompt_tokens_.push_back(base::IntSize(request.prompt));
  if (plan.submission.parser_config() == nullptr) return;
  for (Choice& choice : choices_) choice.parser.emplace(plan.submission.parser_config());
}

Result<std::unique_ptr<Answer>> GeneratedAnswer::Start(server::Service& service,
                                                       const ResponseHead& head,
                                                       GenerationPlan plan,
                                                       std::function<void()> on_ready) {
  std::unique_ptr<GeneratedAnswer> answer(new GeneratedAnswer(service, head, plan));
  if (answer->large()) RETURN_IF_ERROR(answer->kept_.Grow(answer->kept_bytes_));
  ASSIGN_OR_RETURN(answer->generation_, plan.submission.Start(std::move(on_ready)));
  return std::unique_ptr<Answer>(std::move(answer));
}

Answer::Output GeneratedAnswer::GiveUp() {
  Output output;
  update_ = {};
  update_.reason = FinishReason::kCancelled;
  update_.usage.cause = CancelCause::kSlowReader;
  Fail(output);
  return output;
}

Answer::Output GeneratedAnswer::NextOutput() {
  if (stream_ && !ended_ && generation_->given_up()) return GiveUp();
  Output output;
  const int count = base::IntSize(choices_);
  for (int i = 0; i < count && !ended_ && output.events.size() < kEventBytesMax; ++i) {
    const int index = next_;
    next_ = (next_ + 1) % count;
    if (generation_->TakeUpdate(index, update_)) OnUpdate(index, output);
  }
  if (!stream_) output.events.clear();
  output.complete = choices_ended_ && !stream_;
  if (!output.events.empty()) begun_ = true;
  return output;
}

void GeneratedAnswer::Cancel(CancelCause cause) {
  if (!ended_) generation_->Cancel(cause);
}

std::string GeneratedAnswer::Open() {
  if (!stream_) return {};
  std::string events = format_->Open();
  begun_ = begun_ || !events.empty();
  return events;
}

bool GeneratedAnswer::tells_progress() const {
  return format_->tells_progress() &&
         std::none_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.begun; });
}

std::string GeneratedAnswer::KeepAlive() {
  if (!stream_ || ended_) return {};
  std::string comment = format_->KeepAlive();
  begun_ = begun_ || !comment.empty();
  return comment;
}

void GeneratedAnswer::OnUpdate(int index, Output& output) {
  const bool complete =
      update_.reason == FinishReason::kStop || update_.reason == FinishReason::kLength;
  if (update_.finished && !complete) return Fail(output);
  if (progress_ && update_.prompt_done >= 0 && index % choices_per_prompt_ == 0)
    ReportProgress(index, output);
  Choice& choice = choices_[index];
  // A prompt's scores may arrive before the first token.
  const bool says = !update_.text.empty() || !update_.tokens.empty() ||
                    !update_.prompt_scores.empty() || !update_.embeddings.empty() ||
                    update_.finished;
  if (says && !choice.begun) {
    output.events += format_->OnStart(index);
    choice.begun = true;
  }
  if (says) {
    Read(choice);
    Collect(index);
    choice.reasoning_tokens += Reasoned(choice) ? base::IntSize(update_.tokens) : 0;
    output.events += format_->OnDelta({.choice = index,
                                       .parts = parts_,
                                       .tokens = update_.tokens,
                                       .scores = update_.scores,
                                       .prompt_scores = update_.prompt_scores,
                                       .embeddings = update_.embeddings});
  }
  if (update_.finished) FinishChoice(index, output);
}

void GeneratedAnswer::Read(Choice& choice) {
  parts_.clear();
  if (choice.parser.has_value()) {
    const bool cut = update_.reason == FinishReason::kLength;
    // A character that the limit cut in half is not part of a call's marks.
    constexpr std::string_view kReplacement = "\uFFFD";
    std::string_view text = update_.text;
    if (cut && choice.parser->in_call() && text.ends_with(kReplacement))
      text.remove_suffix(kReplacement.size());
    choice.parser->Push(text, parts_);
    if (update_.finished) choice.parser->Finish(cut, parts_);
  } else if (!update_.text.empty()) {
    parts_.push_back({.kind = chat::MessagePart::Kind::kText, .text = update_.text});
  }
}

void GeneratedAnswer::Collect(int index) {
  constexpr std::size_t kTokensMax = 256 << 10;  // longer answers are not remembered
  Choice& choice = choices_[index];
  if (!places_[index / choices_per_prompt_].has_value() || choice.tokens.size() > kTokensMax)
    return;
  choice.whole.Add(parts_);
  choice.tokens.insert(choice.tokens.end(), update_.tokens.begin(), update_.tokens.end());
  if (choice.tokens.size() > kTokensMax) choice.whole = {};
}

void GeneratedAnswer::Remember(int index) {
  Choice& choice = choices_[index];
  const auto& place = places_[index / choices_per_prompt_];
  if (!place.has_value() || (choice.whole.text.empty() && choice.whole.calls.empty())) return;
  server::RememberAnswer(service_, *place, choice.whole, choice.tokens);
}

bool GeneratedAnswer::Reasoned(const Choice& choice) const {
  return (choice.parser.has_value() && choice.parser->in_reasoning()) ||
         (!parts_.empty() && parts_[0].kind == chat::MessagePart::Kind::kReasoning);
}

void GeneratedAnswer::ReportProgress(int index, Output& output) {
  const std::chrono::duration<double, std::milli> since =
      std::chrono::steady_clock::now() - head_.arrived;
  output.events += format_->Progress({.choice = index,
                                      .total = prompt_tokens_[index / choices_per_prompt_],
                                      .cached = update_.prompt_cached,
                                      .read = update_.prompt_done,
                                      .ms = since.count()});
}

void GeneratedAnswer::CountCalls(const chat::CallTally& tally) {
  if (tally.calls > 0) service_.metrics().ToolCalls(chat::CallFormName(tally.form), tally.calls);
  if (tally.rejected != chat::CallRule::kNone)
    service_.metrics().ToolCallRejected(chat::CallRuleName(tally.rejected));
  if (tally.calls > 0 && tally.form != chat::CallForm::kNative) service_.LogFirstLenientCall();
}

void GeneratedAnswer::CountPrompt(int index) {
  service_.metrics().TokensReplayed(update_.usage.replayed_tokens);
  const auto& parts = parts_of_[index / choices_per_prompt_];
  const int at = update_.usage.cache_miss_at;
  if (at >= 0 && parts.has_value())
    service_.metrics().PrefixBroken(server::PromptPartName(parts->At(at)));
}

void GeneratedAnswer::FinishChoice(int index, Output& output) {
  if (choices_[index].parser.has_value()) CountCalls(choices_[index].parser->tally());
  update_.usage.replayed_tokens = replayed_[index / choices_per_prompt_];
  if (index % choices_per_prompt_ == 0) CountPrompt(index);
  choices_[index].usage = update_.usage;
  const int reasoned = choices_[index].reasoning_tokens;
  choices_[index].usage.reasoning_tokens = reasoned;
  if (reasoned > 0)
    service_.metrics().Reasoned(reasoned, reasoning_budget_ >= 0 && reasoned >= reasoning_budget_);
  Remember(index);
  choices_ended_ = generation_->finished();
  ended_ = output.last = choices_ended_ && stream_;
  const Usage total = choices_ended_ ? Total() : Usage();
  output.events += format_->OnEnd({.choice = index,
                                   .reason = update_.reason,
                                   .usage = update_.usage,
                                   .last = choices_ended_,
                                   .total = total});
}

std::size_t GeneratedAnswer::whole_bytes_max() const {
  return large() ? kept_bytes_ * kTextOfByteMax : 0;
}

std::optional<std::size_t> GeneratedAnswer::rest_bytes_max() const {
  const auto rest = generation_->rest();
  if (!rest.has_value()) return std::nullopt;
  const std::size_t repeated = format_->repeats_output() ? kRepeats * whole_bytes_max() : 0;
  return rest->text * kEscapedByteMax + rest->numbers * kTextOfByteMax + format_->EchoBytes() +
         repeated;
}

HttpResponse GeneratedAnswer::FullResponse() {
  ended_ = true;
  return JsonResponse(head_, 200, format_->FullResponse(Total()));
}

// One failed choice ends them all. If nothing was sent, the response has the error's own status; a
// stream ends with an error event.
void GeneratedAnswer::Fail(Output& output) {
  ended_ = output.last = true;
  generation_->Cancel(CancelCause::kOtherChoice);
  const Status status = server::FailureOf(update_);
  const bool cancelled = update_.reason == FinishReason::kCancelled;
  const CancelCause cause = cancelled ? update_.usage.cause : CancelCause::kNone;
  if (begun_) {
    output.failed = true;
    output.events += format_->Fail(status, cause);
    return;
  }
  output.events.clear();
  const bool wait = server::RowOf(status).retry_after;
  output.response = ErrorResponse(head_, protocol::FromStatus(status, cause),
                                  wait ? service_.RetryAfterSeconds() : 0);
}

// A prompt's tokens count once, however many choices it has.
Usage GeneratedAnswer::Total() const {
  Usage total;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Usage& usage = choices_[i].usage;
    if (i % choices_per_prompt_ == 0) {
      total.prompt_tokens += usage.prompt_tokens;
      total.cached_tokens += usage.cached_tokens;
      total.flash_tokens += usage.flash_tokens;
      total.replayed_tokens += usage.replayed_tokens;
      if (i == 0) total.cache_miss_at = usage.cache_miss_at;
    }
    total.completion_tokens += usage.completion_tokens;
    total.reasoning_tokens += usage.reasoning_tokens;
    total.queue_s = std::max(total.queue_s, usage.queue_s);
    total.prefill_s += usage.prefill_s;
    total.restore_s += usage.restore_s;
    total.decode_s += usage.decode_s;
    total.preemptions += usage.preemptions;
    // The last choice's energy covers the whole time.
    total.energy_j = std::max(total.energy_j, usage.energy_j);
    total.spec += usage.spec;
  }
  return total;
}

}  // namespace thermocline::http
