#include "loadtest/client/openai_body.h"

#include "engine/base/json.h"

namespace thermocline::loadtest {
namespace {

Json MessagesJson(const std::vector<Message>& messages) {
  Json::Array list;
  for (const Message& message : messages)
    list.push_back(Json::Object{{"role", message.role}, {"content", message.content}});
  return list;
}

// A conversation as one text, for the route without roles.
std::string PromptOf(const std::vector<Message>& messages) {
  std::string prompt;
  for (const Message& message : messages)
    prompt += (prompt.empty() ? "" : "\n\n") + message.content;
  return prompt;
}

void AddInput(const Request& request, Route route, Json& body) {
  if (route == Route::kChat) {
    body.Set("messages", MessagesJson(request.messages));
  } else {
    body.Set("prompt", PromptOf(request.messages));
  }
}

// Makes the body malformed. Json cannot hold kNotJson, kHugeNumber, kDeepNesting and kBadUtf8,
// which are made as text.
void Spoil(Fault fault, Route route, Json& body) {
  const char* input = route == Route::kChat ? "messages" : "prompt";
  if (fault == Fault::kNoInput) body.Set(input, nullptr);
  if (fault == Fault::kWrongType) body.Set(input, Json(true));
  if (fault == Fault::kNegativeTokens) body.Set("max_tokens", -2);
  if (fault == Fault::kHotSampling) body.Set("temperature", 1000.0);
  if (fault == Fault::kBadRole) {
    body.Set(input, Json::Array{Json::Object{{"role", "nobody"}, {"content", "Hello"}}});
  }
}

std::string SpoiledText(Fault fault, std::string text) {
  text.pop_back();  // the last brace
  if (fault == Fault::kHugeNumber) return text + ",\"n\":1" + std::string(30, '0') + "}";
  if (fault == Fault::kDeepNesting)
    return text + ",\"stop\":" + std::string(10000, '[') + std::string(10000, ']') + "}";
  if (fault == Fault::kBadUtf8) return text + ",\"user\":\"\xC3\x28\xFF\"}";
  return fault == Fault::kNotJson ? text : text + "}";
}

}  // namespace

std::string RequestBody(const Request& request, const BodyOptions& options) {
  Json body = Json::Object{};
  if (!options.model.empty()) body.Set("model", options.model);
  AddInput(request, options.route, body);
  body.Set("stream", Json(true));
  body.Set("stream_options", Json::Object{{"include_usage", Json(true)}});
  if (request.max_tokens > 0) body.Set("max_tokens", request.max_tokens);
  if (request.ignore_eos) body.Set("ignore_eos", Json(true));
  if (options.temperature.has_value()) body.Set("temperature", *options.temperature);
  if (const auto extra = base::ParseJson(options.extra); extra.ok() && extra->is_object()) {
    for (const auto& [key, value] : extra->as_object()) body.Set(key, value);
  }
  if (request.fault == Fault::kNone) return body.Dump();
  Spoil(request.fault, options.route, body);
  return SpoiledText(request.fault, body.Dump());
}

}  // namespace thermocline::loadtest
