#include "server/openai/chat_request.h"

#include <algorithm>
#include <random>

#include "server/openai/fields.h"

namespace thermocline::openai {
namespace {

// Bounds on what one request may carry. Source: limits of hosted APIs, with room.
constexpr std::size_t kStopsMax = 16;
constexpr std::size_t kStopBytesMax = 256;
constexpr std::size_t kLogitBiasMax = 1024;
constexpr std::size_t kMessagesMax = 4096;
constexpr std::size_t kFfnModeBytesMax = 1024;
constexpr std::size_t kSpecModeBytesMax = 64;  // of one that is no mode, in its refusal
constexpr double kTimeoutMax = 86'400;         // seconds

// A content that is a string, null, absent, or a list of text parts.
bool ReadContent(const Json* content, const std::string& where, Fields& fields, Json& out) {
  if (content == nullptr || content->is_string()) {
    out = content == nullptr ? Json() : *content;
    return true;
  }
  if (!content->is_array()) {
    fields.Fail("messages", StrCat(where, ".content must be a string or a list of parts, not a ",
                                   content->type_name()));
    return false;
  }
  std::string text;
  for (std::size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& part = content->as_array()[i];
    const Json *type = part.Find("type"), *value = part.Find("text");
    if (type == nullptr || !type->is_string() || type->as_string() != "text" || value == nullptr ||
        !value->is_string()) {
      fields.Fail("messages",
                  StrCat(where, ".content[", i,
                         "]: only parts of type 'text' with a string 'text' are supported"),
                  "unsupported_value");
      return false;
    }
    text += value->as_string();
  }
  out = std::move(text);
  return true;
}

// Clients send tool arguments as a JSON text; templates read them as a value.
Json ReadToolCalls(const Json& calls) {
  Json out = calls;
  if (!out.is_array()) return out;
  for (Json& call : out.array()) {
    const Json* function = call.Find("function");
    const Json* arguments = function == nullptr ? nullptr : function->Find("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    const auto parsed = base::ParseJson(arguments->as_string());
    if (!parsed.ok()) continue;
    Json changed = *function;
    changed.Set("arguments", *parsed);
    call.Set("function", std::move(changed));
  }
  return out;
}

Json ReadMessages(Fields& fields) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) {
    fields.Fail("messages", "'messages' must be a list of at least one message");
    return {};
  }
  if (messages->as_array().size() > kMessagesMax) {
    fields.Fail("messages", StrCat("'messages' has ", messages->as_array().size(),
                                   " entries; at most ", kMessagesMax, " are allowed"));
    return {};
  }
  Json::Array out;
  for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    const std::string where = StrCat("messages[", i, "]");
    const Json* role = message.Find("role");
    static const std::vector<std::string> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
    if (role == nullptr || !role->is_string() ||
        std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
      fields.Fail("messages",
                  StrCat(where, ".role must be one of system, developer, user, assistant, tool"));
      return {};
    }
    Json content;
    if (!ReadContent(message.Find("content"), where, fields, content)) return {};
    const Json* calls = message.Find("tool_calls");
    if (content.is_null() && (role->as_string() != "assistant")) {
      fields.Fail("messages", StrCat(where, ".content is missing"));
      return {};
    }
    Json entry{
        Json::Object{{"role", role->as_string() == "developer" ? "system" : role->as_string()},
                     {"content", content.is_null() ? Json("") : content}}};
    if (calls != nullptr) entry.Set("tool_calls", ReadToolCalls(*calls));
    for (const char* name : {"name", "tool_call_id"}) {
      if (const Json* value = message.Find(name)) entry.Set(name, *value);
    }
    out.push_back(std::move(entry));
  }
  return Json::Object{{"messages", std::move(out)}};
}

std::vector<std::string> ReadStops(Fields& fields) {
  const Json* stop = fields.Find("stop");
  if (stop == nullptr) return {};
  const Json::Array list = stop->is_array() ? stop->as_array() : Json::Array{*stop};
  std::vector<std::string> out;
  if (list.size() > kStopsMax)
    fields.Fail("stop", StrCat("'stop' has ", list.size(), " entries; at most ", kStopsMax,
                               " are allowed"));
  for (const Json& item : list) {
    if (!item.is_string() || item.as_string().empty() || item.as_string().size() > kStopBytesMax) {
      fields.Fail("stop", StrCat("'stop' must be a string or a list of strings of 1 to ",
                                 kStopBytesMax, " bytes"));
      return {};
    }
    out.push_back(item.as_string());
  }
  return out;
}

void ReadLogitBias(Fields& fields, SamplingParams& sampling) {
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object() || bias->as_object().size() > kLogitBiasMax) {
    fields.Fail("logit_bias",
                StrCat("'logit_bias' must map at most ", kLogitBiasMax, " token ids to numbers"));
    return;
  }
  for (const auto& [name, value] : bias->as_object()) {
    const auto token = base::ParseNumber<int>(name);
    if (!token.has_value() || *token < 0 || !value.is_number() ||
        !(value.as_double() >= -100 && value.as_double() <= 100)) {
      fields.Fail("logit_bias", StrCat("'logit_bias': '", name,
                                       "' must be a token id with a number in [-100, 100]"));
      return;
    }
    sampling.logit_bias.emplace_back(*token, static_cast<float>(value.as_double()));
  }
}

SamplingParams ReadSampling(Fields& fields, const SamplingParams& defaults) {
  SamplingParams s = defaults;
  s.temperature = fields.Double("temperature", defaults.temperature, 0, 2);
  s.top_k = static_cast<int>(fields.Int("top_k", defaults.top_k, 0, 1'000'000));
  s.top_p = fields.Double("top_p", defaults.top_p, 0, 1);
  s.min_p = fields.Double("min_p", defaults.min_p, 0, 1);
  s.repetition_penalty =
      fields.Double("repetition_penalty", defaults.repetition_penalty, 0.01, 100);
  s.presence_penalty = fields.Double("presence_penalty", 0, -2, 2);
  s.frequency_penalty = fields.Double("frequency_penalty", 0, -2, 2);
  if (fields.Find("seed") != nullptr) {
    s.seed = static_cast<std::uint64_t>(fields.Int("seed", 0, INT64_MIN, INT64_MAX));
  } else {
    std::random_device device;
    s.seed = (static_cast<std::uint64_t>(device()) << 32) | device();
  }
  ReadLogitBias(fields, s);
  return s;
}

int ReadMaxTokens(Fields& fields, int absent) {
  const auto older = fields.Int("max_tokens", 0, 1, INT32_MAX),
             newer = fields.Int("max_completion_tokens", 0, 1, INT32_MAX);
  if (older != 0 && newer != 0 && older != newer)
    fields.Fail("max_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one");
  const auto given = newer != 0 ? newer : older;
  return given != 0 ? static_cast<int>(given) : absent;
}

// Fields whose silent neglect would give the client something else than it asked for.
void RefuseUnsupported(Fields& fields) {
  if (fields.Int("n", 1, 1, 128) != 1)
    fields.Fail("n", "'n' above 1 is not supported", "unsupported_value");
  if (fields.Bool("logprobs", false))
    fields.Fail("logprobs", "'logprobs' are not supported", "unsupported_value");
  if (fields.Int("top_logprobs", 0, 0, 20) != 0)
    fields.Fail("top_logprobs", "'top_logprobs' are not supported", "unsupported_value");
  for (const char* name : {"functions", "function_call", "audio", "modalities", "prediction"}) {
    if (fields.Find(name) != nullptr)
      fields.Fail(name, StrCat("'", name, "' is not supported"), "unsupported_value");
  }
  const Json* choice = fields.Find("tool_choice");
  if (choice != nullptr &&
      !(choice->is_string() && (choice->as_string() == "none" || choice->as_string() == "auto"))) {
    fields.Fail("tool_choice", "'tool_choice' other than 'none' or 'auto' is not supported",
                "unsupported_value");
  }
  const Json* tools = fields.Find("tools");
  if (tools != nullptr && !(tools->is_array() && tools->as_array().empty()))
    fields.Fail("tools", "'tools' are not supported", "unsupported_value");
  const Json* format = fields.Find("response_format");
  const Json* type = format == nullptr ? nullptr : format->Find("type");
  if (format != nullptr && (type == nullptr || !type->is_string() || type->as_string() != "text")) {
    fields.Fail("response_format",
                "'response_format' other than {\"type\": \"text\"} is not supported",
                "unsupported_value");
  }
}

// {"speculation": "sync", "draft_tokens": 4}
void ReadSpeculation(Fields& inner, Request& out) {
  out.spec_mode = inner.String("speculation", "");
  bool known = out.spec_mode.empty();
  for (const SpecMode mode :
       {SpecMode::kOff, SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive, SpecMode::kAuto})
    known = known || out.spec_mode == SpecModeName(mode);
  if (!known) {
    inner.Fail("speculation",
               StrCat("'speculation' must be off, sync, branch, exhaustive or auto, not '",
                      out.spec_mode.substr(0, kSpecModeBytesMax), "'"));
  }
  out.spec_tokens = static_cast<int>(inner.Int("draft_tokens", -1, 0, kDraftTokensMax));
}

// {"ffn_mode": "sign"}: what OpenAI's API has no field for. Unknown keys are refused: a misspelt
// one would silently change nothing. The engine knows the modes.
void ReadExtension(Fields& fields, ChatRequest& chat) {
  Request& out = chat.request;
  const Json* extension = fields.Find("x_thermocline");
  if (extension == nullptr) return;
  if (!extension->is_object()) {
    fields.Fail("x_thermocline",
                StrCat("'x_thermocline' must be an object, not a ", extension->type_name()));
    return;
  }
  for (const auto& [key, value] : extension->as_object()) {
    if (key == "ffn_mode" || key == "timeout_s" || key == "speculation" || key == "draft_tokens")
      continue;
    fields.Fail("x_thermocline." + key,
                StrCat("'x_thermocline' has no field '", key,
                       "'; it has 'ffn_mode', 'timeout_s', 'speculation' and 'draft_tokens'"));
  }
  Fields inner(*extension);
  out.ffn_mode = inner.String("ffn_mode", "");
  chat.timeout_s = inner.Double("timeout_s", 0, 0, kTimeoutMax);
  ReadSpeculation(inner, out);
  if (!inner.ok()) fields.Fail("x_thermocline." + inner.error().param, inner.error().message);
  if (out.ffn_mode.size() > kFfnModeBytesMax) {
    fields.Fail("x_thermocline.ffn_mode",
                StrCat("'ffn_mode' has ", out.ffn_mode.size(), " bytes; at most ", kFfnModeBytesMax,
                       " are allowed"));
  }
}

}  // namespace

std::variant<ChatRequest, ApiError> ParseChatRequest(std::string_view body,
                                                     const ChatDefaults& defaults) {
  const auto json = base::ParseJson(body);
  if (!json.ok()) return FromStatus(json.status());
  Fields fields(*json);
  if (!json->is_object()) {
    fields.Fail("", StrCat("the body must be a JSON object, not a ", json->type_name()));
    return fields.error();
  }
  ChatRequest out;
  out.model = fields.String("model", "");
  out.conversation = ReadMessages(fields);
  out.request.sampling = ReadSampling(fields, defaults.sampling);
  out.request.max_tokens = ReadMaxTokens(fields, defaults.max_tokens);
  out.request.stop = ReadStops(fields);
  out.stream = fields.Bool("stream", false);
  RefuseUnsupported(fields);
  ReadExtension(fields, out);
  if (const Json* options = fields.Find("stream_options")) {
    Fields inner(*options);
    if (!options->is_object())
      fields.Fail("stream_options", "'stream_options' must be an object");
    else
      out.include_usage = inner.Bool("include_usage", false);
    if (!inner.ok()) fields.Fail("stream_options", inner.error().message);
  }
  if (!fields.ok()) return fields.error();
  return out;
}

}  // namespace thermocline::openai
