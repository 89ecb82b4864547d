#include "server/openai/completion_answer.h"

#include "engine/base/index.h"

namespace thermocline::openai {

CompletionAnswer::CompletionAnswer(const AnswerHead& head, const text::Tokenizer& tokenizer,
                                   const server::Submission& submission, std::vector<Echo> echoes,
                                   bool stream)
    : ChoicesAnswer(head),
      stream_(stream),
      choices_per_prompt_(submission.choices()),
      echoes_(std::move(echoes)),
      choices_(submission.requests().size() * submission.choices()) {
  const int logprobs = submission.generation_request().request.logprobs;
  for (std::size_t i = 0; i < submission.requests().size(); ++i) {
    const std::vector<int>& prompt = submission.requests()[i].prompt;
    first_tokens_.push_back(prompt[0]);
    if (logprobs < 0) continue;
    const bool at_start =
        !echoes_.empty() || (prompt.size() == 1 && prompt[0] == tokenizer.vocabulary().bos);
    for (int k = 0; k < choices_per_prompt_; ++k)
      choices_[i * choices_per_prompt_ + k].logprobs.emplace(tokenizer, logprobs, at_start);
  }
}

std::string CompletionAnswer::Echoed(const server::ChoiceDelta& delta, Choice& choice) {
  choice.begun = true;
  if (echoes_.empty()) return {};
  const Echo& echo = echoes_[delta.choice / choices_per_prompt_];
  if (choice.logprobs.has_value()) {
    choice.logprobs->AddFirst(first_tokens_[delta.choice / choices_per_prompt_], !echo.bos_added);
    if (stream_)
      choice.logprobs->Add(delta.prompt_scores);
    else
      choice.scores.assign(delta.prompt_scores.begin(), delta.prompt_scores.end());
  }
  return echo.text;
}

std::string CompletionAnswer::OnDelta(const server::ChoiceDelta& delta) {
  Choice& choice = choices_[delta.choice];
  std::string text = choice.begun ? "" : Echoed(delta, choice);
  for (const chat::MessagePart& part : delta.parts) text += part.text;
  if (!stream_) {
    choice.text += text;
    choice.scores.insert(choice.scores.end(), delta.scores.begin(), delta.scores.end());
    return "";
  }
  if (choice.logprobs.has_value()) choice.logprobs->Add(delta.scores);
  if (text.empty() && (!choice.logprobs.has_value() || delta.scores.empty())) return "";
  Json logprobs;
  if (choice.logprobs.has_value()) logprobs = choice.logprobs->Take();
  return Chunk(delta.choice, std::move(text), std::move(logprobs));
}

std::vector<Json::Object> CompletionAnswer::WholeChoices() {
  std::vector<Json::Object> out;
  for (Choice& choice : choices_) {
    Json logprobs;
    if (choice.logprobs.has_value()) {
      choice.logprobs->Add(choice.scores);
      logprobs = choice.logprobs->Take();
    }
    out.push_back({{"text", std::move(choice.text)}, {"logprobs", std::move(logprobs)}});
  }
  return out;
}

}  // namespace thermocline::openai
