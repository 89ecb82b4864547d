#include "server/ollama/ollama_request.h"

#include <algorithm>
#include <cmath>

#include "engine/base/json_text.h"
#include "engine/base/random.h"
#include "server/core/request_limits.h"
#include "server/core/server_config.h"
#include "server/protocol/conversation_fields.h"
#include "server/protocol/messages.h"
#include "server/protocol/sampling_fields.h"
#include "server/protocol/tool_fields.h"

namespace thermocline::ollama {
namespace {

using protocol::Fields;

// Reads "options": sampling and limits.
void ReadOptions(Fields& fields, const protocol::RequestDefaults& defaults, int context_length,
                 server::GenerationRequest& generation) {
  Request& request = generation.request;
  request.sampling = defaults.sampling;
  request.max_tokens = generation.default_max_tokens = defaults.max_tokens;
  request.sampling.seed = base::RandomBits64();
  const Json* given = fields.Find("options");
  if (given == nullptr) return;
  if (!given->is_object()) return fields.Fail("options", "'options' must be an object");
  Fields options(*given);
  protocol::ReadSampling(options, protocol::SamplingNames::kLlama, request.sampling);
  // -1: until the model ends; -2: until the context is full.
  const auto limit = options.Int("num_predict", -3, -2, INT32_MAX);
  if (limit != -3) {
    request.max_tokens = static_cast<int>(std::max<std::int64_t>(limit, 0));
    generation.default_max_tokens = 0;
  }
  // Ollama limits it to the model's context, too.
  if (options.Int("num_ctx", 0, 0, INT32_MAX) > context_length) options.LeaveOut("num_ctx");
  request.stop = options.Stops("stop");
  (void)options.Find("reasoning_effort");  // read by ReadOptionEffort
  options.CheckUnknown(false, false);      // as in Ollama, which only warns of unknown options
  fields.Adopt("options", options);
}

// Reads "format": "json", or a schema.
void ReadFormat(Fields& fields, server::GenerationRequest& generation) {
  const Json* format = fields.Find("format");
  if (format == nullptr || (format->is_string() && format->as_string().empty())) return;
  if (format->is_string() && format->as_string() == "json") {
    generation.grammar = GrammarSpec{.kind = GrammarSpec::Kind::kJsonObject, .field = "format"};
  } else if (format->is_object()) {
    generation.grammar = GrammarSpec{
        .kind = GrammarSpec::Kind::kJsonSchema, .text = format->Dump(), .field = "format"};
  } else {
    fields.Fail("format", "'format' must be \"json\" or a JSON schema");
  }
}

// Reads "think": a boolean, or an effort.
void ReadThink(Fields& fields, Json& json) {
  const Json* think = fields.Find("think");
  if (think == nullptr) return;
  if (think->is_bool()) {
    json.Set("enable_thinking", think->as_bool());
  } else if (think->is_string()) {
    json.Set("enable_thinking", true);
    json.Set("reasoning_effort", think->as_string());
  } else {
    fields.Fail("think", "'think' must be a boolean, low, medium or high");
  }
}

// Open WebUI sends the effort as an option.
void ReadOptionEffort(Fields& fields, Json& json) {
  const Json* options = fields.Find("options");
  const Json* effort = options == nullptr ? nullptr : options->Find("reasoning_effort");
  if (effort == nullptr) return;
  protocol::SetReasoningEffort(fields, "options.reasoning_effort", TextOf(effort), json);
}

// Reads "keep_alive": a number of seconds, or a duration such as "5m" or "1h30m"; below 0 means for
// ever. nullopt: it is absent or unreadable, which Ollama's clients send, too.
std::optional<int> ReadKeepAlive(Fields& fields) {
  constexpr double kMost = 1e9;  // seconds
  const Json* keep = fields.Find("keep_alive");
  if (keep == nullptr) return std::nullopt;
  const auto asked =
      keep->is_number() ? std::optional(keep->as_double()) : server::SecondsOf(TextOf(keep));
  if (!asked.has_value()) return std::nullopt;
  return *asked < 0 || *asked > kMost ? -1 : static_cast<int>(std::ceil(*asked));
}

// A chat message, with Ollama's names of thinking, images and calls replaced.
Json AdaptMessage(Fields& fields, const Json& message, const std::string& where) {
  Json out = Json::Object{};
  if (!message.is_object()) return message;
  for (const auto& [key, value] : message.as_object()) {
    if (key == "images" && !value.is_null() && !(value.is_array() && value.as_array().empty()))
      fields.FailUnsupported("messages", StrCat(where, ": images are not supported"));
    if (key == "thinking") out.Set("reasoning_content", value);
    if (key == "tool_name") out.Set("name", value);
    if (key == "role" || key == "content" || key == "tool_call_id" || key == "name")
      out.Set(key, value);
    static constexpr std::string_view kKnown[] = {
        "role", "content", "tool_call_id", "name", "thinking", "tool_name", "images", "tool_calls"};
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown) &&
        !value.is_null())
      fields.Ignore("messages." + key);
    if (key != "tool_calls" || !value.is_array()) continue;
    Json::Array calls;
    for (const Json& call : value.as_array()) {
      Json copy = call;
      if (copy.is_object() && copy.Find("type") == nullptr) copy.Set("type", "function");
      calls.push_back(std::move(copy));
    }
    if (!calls.empty()) out.Set("tool_calls", std::move(calls));
  }
  if (out.Find("content") == nullptr) out.Set("content", "");
  return out;
}

Json AdaptMessages(Fields& fields, const Json& messages) {
  Json::Array out;
  for (std::size_t i = 0; i < messages.as_array().size(); ++i)
    out.push_back(AdaptMessage(fields, messages.as_array()[i], StrCat("messages[", i, "]")));
  return Json(std::move(out));
}

void ReadShared(Fields& fields, const protocol::RequestDefaults& defaults, int context_length,
                OllamaRequest& out) {
  out.generation.model = ModelName(fields.String("model", ""));
  out.stream = fields.Bool("stream", true);
  out.keep_alive_s = ReadKeepAlive(fields);
  out.unload = out.keep_alive_s == 0;
  ReadOptions(fields, defaults, context_length, out.generation);
  ReadFormat(fields, out.generation);
  for (const char* name : {"logprobs", "top_logprobs"})
    if (fields.Find(name) != nullptr)
      fields.FailUnsupported(name, StrCat("'", name, "' is not supported here"));
}

}  // namespace

std::string ModelName(const std::string& name) {
  constexpr std::string_view kTag = ":latest";
  return name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name;
}

Result<OllamaRequest> ParseChat(std::string_view body, const protocol::RequestDefaults& defaults,
                                int context_length) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  Fields fields(json);
  OllamaRequest out;
  out.generation.prompt_field = "messages";
  out.generation.in_parts = true;
  ReadShared(fields, defaults, context_length, out);
  const Json* messages = fields.Find("messages");
  server::Conversation conversation{.tools = protocol::ReadTools(fields)};
  out.load_only = messages == nullptr || (messages->is_array() && messages->as_array().empty());
  if (!out.load_only && !messages->is_array())
    fields.Fail("messages", "'messages' must be a list of messages");
  if (!out.load_only && fields.ok()) {
    const Json adapted = AdaptMessages(fields, *messages);
    conversation.json = protocol::ReadMessages(fields, &adapted, "messages");
  }
  if (!out.load_only && fields.ok()) {
    ReadThink(fields, conversation.json);
    ReadOptionEffort(fields, conversation.json);
  }
  (void)fields.Find("think");
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  RETURN_IF_ERROR(fields.status());
  out.generation.prompts = {std::move(conversation)};
  return out;
}

Result<OllamaRequest> ParseGenerate(std::string_view body,
                                    const protocol::RequestDefaults& defaults, int context_length) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  Fields fields(json);
  OllamaRequest out;
  out.chat = false;
  out.generation.prompt_field = "prompt";
  ReadShared(fields, defaults, context_length, out);
  const std::string prompt = fields.String("prompt", ""), system = fields.String("system", "");
  const bool raw = fields.Bool("raw", false);
  const std::string suffix = fields.String("suffix", "");
  out.load_only = prompt.empty() && suffix.empty();
  if (!suffix.empty() && !system.empty())
    fields.Fail("system", "'system' has no place beside a 'suffix'");
  for (const char* name : {"template", "images", "context"}) {
    const Json* value = fields.Find(name);
    const bool empty = value == nullptr || (value->is_string() && value->as_string().empty()) ||
                       (value->is_array() && value->as_array().empty());
    if (!empty) fields.FailUnsupported(name, StrCat("'", name, "' is not supported"));
  }
  if (raw && !system.empty()) fields.Fail("system", "'system' has no place in a raw prompt");
  server::Conversation conversation{.json = Json::Object{}};
  if (!raw) {
    ReadThink(fields, conversation.json);
    ReadOptionEffort(fields, conversation.json);
  }
  (void)fields.Find("think");
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  RETURN_IF_ERROR(fields.status());
  if (!suffix.empty()) {
    out.generation.suffix_field = "suffix";
    out.generation.prompts = {server::Infill{.prefix = prompt, .suffix = suffix}};
    return out;
  }
  if (raw) {
    out.generation.prompts = {prompt};
    return out;
  }
  Json::Array messages;
  if (!system.empty()) messages.push_back(Json::Object{{"role", "system"}, {"content", system}});
  messages.push_back(Json::Object{{"role", "user"}, {"content", prompt}});
  conversation.json.Set("messages", std::move(messages));
  out.generation.in_parts = true;
  out.generation.prompts = {std::move(conversation)};
  return out;
}

Result<EmbedRequest> ParseEmbed(std::string_view body, Pooling pooling, bool single,
                                bool strict_fields) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  Fields fields(json);
  EmbedRequest out;
  out.single = single;
  const char* name = single ? "prompt" : "input";
  out.generation.model = ModelName(fields.String("model", ""));
  out.generation.prompt_field = name;
  out.generation.embed = pooling;
  out.generation.request.prompt_only = true;
  const Json* input = fields.Find(name);
  Json::Array list;
  if (input != nullptr && input->is_array()) {
    list = input->as_array();
  } else if (input != nullptr && !(input->is_string() && input->as_string().empty())) {
    list = {*input};
  }
  out.empty = input != nullptr && list.empty();
  for (const Json& each : list) {
    if (!each.is_string()) fields.Fail(name, StrCat("'", name, "' must be a text or texts"));
    if (each.is_string()) out.generation.prompts.emplace_back(each.as_string());
  }
  if (input == nullptr || list.size() > server::kEmbeddedTextsMax)
    fields.Fail(name, StrCat("'", name, "' must be 1 to ", server::kEmbeddedTextsMax, " texts"));
  out.dimensions = fields.Int32("dimensions", 0, 0, 1 << 20);
  out.generation.text_tokens_max = fields.Bool("truncate", true) ? INT32_MAX : 0;
  (void)fields.Find("options");
  out.keep_alive_s = ReadKeepAlive(fields);
  fields.CheckUnknown(strict_fields);
  out.generation.ignored_fields = fields.ignored();
  RETURN_IF_ERROR(fields.status());
  return out;
}

}  // namespace thermocline::ollama
