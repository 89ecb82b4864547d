#include "server/anthropic/messages_request.h"

#include <algorithm>
#include <set>

#include "engine/base/json_text.h"
#include "server/anthropic/messages_input.h"
#include "server/core/request_limits.h"
#include "server/protocol/conversation_fields.h"
#include "server/protocol/structured_output.h"
#include "server/protocol/tool_fields.h"

namespace thermocline::anthropic {
namespace {

using protocol::Fields;

// Reads {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"}.
void ReadToolChoice(Fields& fields, chat::ToolRequest& out) {
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  using Mode = chat::ToolChoice::Mode;
  fields.IgnoreOthers("tool_choice", *choice, {"type", "name", "disable_parallel_tool_use"});
  const std::string type = TextOf(*choice, "type");
  if (type == "any" || type == "tool") {
    out.choice.mode = Mode::kRequired;
    if (type == "tool") out.choice.name = TextOf(*choice, "name");
    if (type == "tool" && out.choice.name.empty())
      fields.Fail("tool_choice", "'tool_choice' of type tool needs 'name'");
  } else if (type == "none") {
    out.choice.mode = Mode::kNone;
  } else if (type != "auto") {
    fields.Fail("tool_choice", "'tool_choice.type' must be auto, any, tool or none");
  }
  const Json* single = choice->Find("disable_parallel_tool_use");
  out.choice.parallel = single == nullptr || !single->is_bool() || !single->as_bool();
}

// True for Anthropic's tools that the client runs; their types have a date at the end.
bool RunsWithClient(const std::string& type) {
  static constexpr std::string_view kTypes[] = {"bash_", "text_editor_", "memory_", "computer_"};
  return std::any_of(std::begin(kTypes), std::end(kTypes),
                     [&type](std::string_view begin) { return type.starts_with(begin); });
}

// Accepts a tool that the model can be given: one of the client's own, or one of Anthropic's that
// the client runs and gives a schema for.
void CheckToolType(Fields& fields, const Json& tool, const std::string& where) {
  const std::string type = TextOf(tool, "type");
  const Json* schema = tool.Find("input_schema");
  const bool has_schema = schema != nullptr && !schema->is_null(), known = RunsWithClient(type);
  if (type.empty() || type == "custom" || (known && has_schema)) return;
  const char* why = known ? "' have no schema here; define the tool with 'input_schema'"
                          : "' are run by Anthropic, and not supported";
  fields.FailUnsupported("tools", StrCat(where, ": tools of type '", base::Shorten(type, 64), why));
}

// Names of the tools that results refer to.
std::set<std::string> ReferencedTools(const Json* messages) {
  std::set<std::string> out;
  const auto each = [](const Json* list, const auto& visit) {
    if (list == nullptr || !list->is_array()) return;
    for (const Json& item : list->as_array()) visit(item);
  };
  each(messages, [&](const Json& message) {
    each(message.Find("content"), [&](const Json& block) {
      each(block.Find("content"), [&](const Json& part) {
        if (TextOf(part, "type") == "tool_reference") out.insert(TextOf(part, "tool_name"));
      });
    });
  });
  return out;
}

chat::ToolRequest ReadMessagesTools(Fields& fields) {
  chat::ToolRequest out;
  const Json* tools = fields.Find("tools");
  if (tools != nullptr && !tools->is_array()) fields.Fail("tools", "'tools' must be a list");
  const std::set<std::string> referenced = ReferencedTools(fields.Find("messages"));
  for (std::size_t i = 0; fields.ok() && tools != nullptr && i < tools->as_array().size(); ++i) {
    const Json& tool = tools->as_array()[i];
    const std::string where = StrCat("tools[", i, "]");
    CheckToolType(fields, tool, where);
    if (!fields.ok()) break;
    fields.IgnoreOthers("tools", tool,
                        {"type", "name", "description", "input_schema", "strict", "cache_control",
                         "defer_loading"});
    // A deferred tool may be called once a search has found it; the search's result defines it.
    const Json* deferred = tool.Find("defer_loading");
    const bool waits = deferred != nullptr && deferred->is_bool() && deferred->as_bool();
    if (waits && !referenced.contains(TextOf(tool, "name"))) continue;
    Json function = tool;
    const Json* schema = tool.Find("input_schema");
    if (schema != nullptr) function.Set("parameters", *schema);
    if (auto read = protocol::ReadFunction(fields, function, where)) {
      read->listed = !waits;
      protocol::AddTool(fields, *std::move(read), out.tools);
    }
  }
  ReadToolChoice(fields, out);
  protocol::CheckChoice(fields, out);
  return out;
}

// Reads {"type": "enabled" | "adaptive" | "between_tools" | "disabled", "budget_tokens": N} for the
// chat template and the limit of reasoning.
void ReadThinking(Fields& fields, server::Conversation& out) {
  const Json* thinking = fields.Find("thinking");
  if (thinking == nullptr) return;
  const std::string type = TextOf(*thinking, "type");
  if (type == "disabled" || type == "enabled" || type == "adaptive" || type == "between_tools") {
    out.json.Set("enable_thinking", type != "disabled");
  } else {
    return fields.Fail("thinking",
                       "'thinking.type' must be enabled, adaptive, between_tools or disabled");
  }
  if (thinking->Find("budget_tokens") == nullptr || type == "disabled") return;
  Fields inner(*thinking);
  out.reasoning_budget = inner.Int32("budget_tokens", -1, 0, INT32_MAX);
  if (!inner.ok()) fields.Fail("thinking.budget_tokens", inner.status().message());
}

// Reads {"effort", "format": {"type": "json_schema", "schema"}}.
void ReadOutputConfig(Fields& fields, Json& json, server::GenerationRequest& generation) {
  const Json* config = fields.Find("output_config");
  if (config == nullptr) return;
  if (!config->is_object())
    return fields.Fail("output_config", "'output_config' must be an object");
  fields.IgnoreOthers("output_config", *config, {"effort", "format"});
  protocol::SetReasoningEffort(fields, "output_config.effort", TextOf(*config, "effort"), json);
  const Json* format = config->Find("format");
  if (format == nullptr) return;
  const Json body = Json::Object{{"response_format", *format}};
  Fields inner(body);
  auto spec = protocol::ReadStructuredOutput(inner);
  if (!inner.ok()) return fields.Fail("output_config.format", inner.status().message());
  constexpr std::string_view kField = "response_format";
  for (const std::string& name : inner.ignored())
    fields.Ignore(StrCat("output_config.format", name.substr(kField.size())));
  if (!spec.has_value()) return;
  spec->field = "output_config.format";
  generation.grammar = std::move(spec);
}

}  // namespace

server::Conversation ReadMessagesConversation(Fields& fields) {
  server::Conversation out{.json = ReadInput(fields), .tools = ReadMessagesTools(fields)};
  if (!fields.ok()) return out;
  ReadThinking(fields, out);
  const Json& last = out.json.Find("messages")->as_array().back();
  out.continues_last =
      last.Find("role")->as_string() == "assistant" && last.Find("tool_calls") == nullptr;
  return out;
}

Result<MessagesRequest> ParseMessagesRequest(std::string_view body,
                                             const protocol::RequestDefaults& defaults,
                                             protocol::FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  Fields fields(json, log);
  protocol::CommonRequest common;
  server::GenerationRequest& generation = common.generation;
  generation.prompt_field = "messages";
  generation.in_parts = true;
  server::Conversation conversation = ReadMessagesConversation(fields);
  if (fields.Find("max_tokens") == nullptr) fields.Fail("max_tokens", "'max_tokens' is required");
  protocol::ReadCommon(fields, defaults, 1, common);
  if (generation.choices != 1)
    fields.FailUnsupported("n", "'n' other than 1 is not supported here");
  if (fields.Find("stop_sequences") != nullptr)
    generation.request.stop = fields.Stops("stop_sequences");
  if (fields.ok()) ReadOutputConfig(fields, conversation.json, generation);
  generation.prompts = {std::move(conversation)};
  if (fields.Find("thread") != nullptr)
    fields.FailUnsupported("thread", "threads are not supported: nothing is stored here");
  protocol::FinishFields(fields, defaults.strict_fields, generation);
  if (!fields.ok()) return fields.status();
  generation.request.progress = common.stream;  // pings tell it
  return MessagesRequest{.generation = std::move(generation), .stream = common.stream};
}

}  // namespace thermocline::anthropic
