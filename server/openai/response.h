// Answers of /v1/chat/completions and /v1/completions: whole, or as the chunks of a stream.
#pragma once

#include <string>

#include "engine/api/request.h"
#include "engine/base/json.h"

namespace thermocline::openai {

// What all parts of one answer share.
struct AnswerHead {
  bool chat = true;          // else of /v1/completions
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  // Unix time
  std::string model;
  bool include_usage = false;
};

AnswerHead MakeAnswerHead(bool chat, const std::string& model, bool include_usage);

Json UsageJson(const Usage& usage);
// How long the answer took and what became of drafts. Names and units are those of llama.cpp's
// server where it has them: "prompt_n" without cached tokens ("cache_n"), "draft_n",
// "draft_n_accepted", milliseconds. The first token comes from the prompt's last step:
// "predicted_ms" and "predicted_per_second" are of those after it.
Json TimingsJson(const Usage& usage);

// A choice that has ended.
struct WholeChoice {
  std::string text = {};
  Json logprobs = {};
  FinishReason reason = FinishReason::kStop;
};
Json WholeAnswer(const AnswerHead& head, std::vector<WholeChoice> choices, const Usage& usage);

// Server-sent events, each "data: <one line>\n\n". The first of a chat's choice.
std::string RoleEvent(const AnswerHead& head, int index);
std::string ContentEvent(const AnswerHead& head, int index, const std::string& text,
                         Json logprobs = {});
// The last of a choice. Timings are in the last chunk of all: that of the usage, or, if no usage is
// asked for, the finish of the last choice, which alone has `usage`.
std::string FinishEvent(const AnswerHead& head, int index, FinishReason reason,
                        const Usage* usage = nullptr);
std::string UsageEvent(const AnswerHead& head, const Usage& usage);
// How much of the prompt is read. Source: llama.cpp's server; only there a chunk has no choices.
struct Progress {
  int index = 0;                        // of the choice
  int total = 0, cached = 0, read = 0;  // tokens
  double ms = 0;                        // since the request came
};
std::string ProgressEvent(const AnswerHead& head, const Progress& progress);
std::string DataEvent(const Json& json);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";
// A comment: clients skip it, proxies see that the connection lives.
inline constexpr const char* kKeepAliveEvent = ": keep-alive\n\n";

}  // namespace thermocline::openai
