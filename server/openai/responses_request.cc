#include "server/openai/responses_request.h"

#include <algorithm>

#include "server/openai/responses_input.h"
#include "server/protocol/conversation_fields.h"
#include "server/protocol/structured_output.h"
#include "server/protocol/tool_fields.h"

namespace thermocline::openai {
namespace {

// Rejects fields that need stored answers.
void RefuseStored(protocol::Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.Find(name) != nullptr)
      fields.FailUnsupported(name, StrCat("'", name,
                                          "' is not supported: nothing is stored here; send the "
                                          "whole conversation as 'input'"));
  }
  if (fields.Bool("background", false))
    fields.FailUnsupported("background", "'background' is not supported");
  const std::string truncation = fields.String("truncation", "disabled");
  if (truncation != "disabled")
    fields.FailUnsupported("truncation", "'truncation' other than disabled is not supported");
  (void)fields.Find("max_tool_calls");  // limits tools that run on the server, which has none
}

// Reads {"effort", "summary"}. There are no summaries: the reasoning itself is returned.
void ReadReasoning(protocol::Fields& fields, Json& json) {
  const Json* reasoning = fields.Find("reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) return fields.Fail("reasoning", "'reasoning' must be an object");
  fields.IgnoreOthers("reasoning", *reasoning, {"effort", "summary", "generate_summary"});
  const Json* effort = reasoning->Find("effort");
  if (effort == nullptr || effort->is_null()) return;
  if (!effort->is_string())
    return fields.Fail("reasoning.effort", "'reasoning.effort' must be a string");
  protocol::SetReasoningEffort(fields, "reasoning.effort", effort->as_string(), json);
}

// Reads {"format": {"type": "json_schema", "name", "schema", "strict"}, "verbosity"}.
void ReadText(protocol::Fields& fields, server::GenerationRequest& generation) {
  const Json* text = fields.Find("text");
  const Json* format = text == nullptr ? nullptr : text->Find("format");
  if (text != nullptr && !text->is_object()) fields.Fail("text", "'text' must be an object");
  if (text != nullptr) fields.IgnoreOthers("text", *text, {"format", "verbosity"});
  if (format == nullptr) return;
  const Json body = Json::Object{{"response_format", *format}};
  protocol::Fields inner(body);
  auto spec = protocol::ReadStructuredOutput(inner);
  if (!inner.ok()) return fields.Fail("text.format", inner.status().message());
  constexpr std::string_view kField = "response_format";
  for (const std::string& name : inner.ignored())
    fields.Ignore(StrCat("text.format", name.substr(kField.size())));
  if (!spec.has_value()) return;
  if (generation.grammar.has_value())
    return fields.Fail("text.format", StrCat("'", generation.grammar->field,
                                             "' and 'text.format' both say what the answer must "
                                             "be; give one"));
  spec->field = "text.format";
  generation.grammar = std::move(spec);
}

// Reads "include", which may ask for log probabilities.
void ReadInclude(protocol::Fields& fields, Request& request) {
  const Json* include = fields.Find("include");
  const auto top = fields.Int("top_logprobs", -1, 0, kLogprobsMax);
  if (include != nullptr && !include->is_array())
    return fields.Fail("include", "'include' must be a list");
  if (include == nullptr) return;
  for (const Json& each : include->as_array()) {
    const std::string name = each.is_string() ? each.as_string() : "";
    if (name == "message.output_text.logprobs")
      request.logprobs = static_cast<int>(std::max<std::int64_t>(top, 0));
    else if (name != "reasoning.encrypted_content")
      fields.FailUnsupported(
          "include", StrCat("'include' of '", base::Shorten(name, 64), "' is not supported"));
  }
}

// The members of a response that repeat the request.
Json::Object EchoOf(const Json& body) {
  static constexpr std::pair<const char*, const char*> kEchoed[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"temperature", "null"},
      {"top_p", "null"},
      {"tool_choice", "\"auto\""},
      {"tools", "[]"},
      {"text", R"({"format":{"type":"text"}})"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"truncation", "\"disabled\""},
      {"user", "null"}};
  Json::Object out;
  for (const auto& [name, absent] : kEchoed) {
    const Json* value = body.Find(name);
    out.emplace_back(name, value != nullptr ? *value : *base::ParseJson(absent));
  }
  return out;
}

}  // namespace

Result<ResponsesRequest> ParseResponsesRequest(std::string_view body,
                                               const protocol::RequestDefaults& defaults,
                                               protocol::FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  protocol::Fields fields(json, log);
  ResponsesRequest out;
  out.generation.prompt_field = "input";
  out.generation.in_parts = true;
  server::Conversation conversation{
      .json = ReadInput(fields), .tools = protocol::ReadTools(fields, protocol::ToolShape::kFlat)};
  if (fields.ok()) ReadReasoning(fields, conversation.json);
  out.generation.prompts = {std::move(conversation)};
  // Codex sends no limit and retries an answer that was cut off, so only the context limits it.
  protocol::RequestDefaults unbounded = defaults;
  unbounded.max_tokens = 0;
  protocol::ReadCommon(fields, unbounded, 1, out);
  const auto limit = fields.Int("max_output_tokens", -1, 1, INT32_MAX);
  if (limit > 0) {
    out.generation.request.max_tokens = static_cast<int>(limit);
    out.generation.default_max_tokens = 0;
  }
  if (out.generation.choices != 1)
    fields.FailUnsupported("n", "'n' other than 1 is not supported here");
  ReadText(fields, out.generation);
  ReadInclude(fields, out.generation.request);
  RefuseStored(fields);
  out.generation.request.progress = out.stream;  // response.in_progress tells it
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  if (!fields.ok()) return fields.status();
  out.echo = EchoOf(json);
  return out;
}

}  // namespace thermocline::openai
