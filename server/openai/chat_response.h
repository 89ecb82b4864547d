// Answers of /v1/chat/completions: whole, or as the chunks of a stream.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/request.h"

namespace thermocline::openai {

// What all parts of one answer share.
struct AnswerHead {
  std::string id;            // "chatcmpl-..."
  std::int64_t created = 0;  // Unix time
  std::string model;
  bool include_usage = false;
};

AnswerHead MakeAnswerHead(const std::string& model, bool include_usage);

// "stop" or "length".
const char* FinishReasonName(FinishReason reason);
Json UsageJson(const Usage& usage);
// How long the answer took and what became of drafts. Names and units are those of llama.cpp's
// server where it has them: "prompt_n" without cached tokens ("cache_n"), "draft_n",
// "draft_n_accepted", milliseconds. The first token comes from the prompt's last step:
// "predicted_ms" and "predicted_per_second" are of those after it.
Json TimingsJson(const Usage& usage);

Json WholeAnswer(const AnswerHead& head, const std::string& text, FinishReason reason,
                 const Usage& usage);

// Server-sent events, each "data: <one line>\n\n".
std::string RoleEvent(const AnswerHead& head);
std::string ContentEvent(const AnswerHead& head, const std::string& text);
// Timings are in the last chunk: that of the usage, or, if no usage is asked for, the finish.
std::string FinishEvent(const AnswerHead& head, FinishReason reason, const Usage& usage);
std::string UsageEvent(const AnswerHead& head, const Usage& usage);
std::string DataEvent(const Json& json);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

}  // namespace thermocline::openai
