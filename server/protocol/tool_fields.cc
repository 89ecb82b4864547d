#include "server/protocol/tool_fields.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "engine/base/bytes.h"
#include "server/core/request_limits.h"

namespace thermocline::protocol {
namespace {

using chat::Tool;
using chat::ToolChoice;

bool IsToolName(const std::string& name) {
  return !name.empty() && name.size() <= server::kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(base::ByteOf(c)) != 0 || c == '_' || c == '-' || c == '.';
         });
}

// The name in {"type": "function", "function": {"name": ...}}, or in {"name": ...}.
std::string NameOfChoice(const Json& choice) {
  const Json* function = choice.Find("function");
  const Json* name = function != nullptr ? function->Find("name") : choice.Find("name");
  return name != nullptr && name->is_string() ? name->as_string() : "";
}

void ReadAllowed(Fields& fields, const Json& choice, chat::ToolRequest& out) {
  const Json* allowed = choice.Find("allowed_tools");
  const Json& inner = allowed != nullptr ? *allowed : choice;
  const Json *mode = inner.Find("mode"), *tools = inner.Find("tools");
  const std::string name = mode != nullptr && mode->is_string() ? mode->as_string() : "auto";
  if ((name != "auto" && name != "required") || tools == nullptr || !tools->is_array())
    return fields.Fail(
        "tool_choice",
        "'tool_choice' of type allowed_tools has 'mode' auto or required and 'tools'");
  if (name == "required") out.choice.mode = ToolChoice::Mode::kRequired;
  std::vector<Tool> kept;
  std::set<std::string> names;  // for removing duplicates
  for (const Json& each : tools->as_array()) {
    const std::string wanted = NameOfChoice(each);
    if (!names.insert(wanted).second) continue;
    const auto found = std::find_if(out.tools.begin(), out.tools.end(),
                                    [&](const Tool& tool) { return tool.name == wanted; });
    if (found == out.tools.end())
      return fields.Fail("tool_choice", StrCat("'tool_choice' allows the tool '", wanted,
                                               "', which 'tools' does not have"));
    kept.push_back(*found);
  }
  out.tools = std::move(kept);
}

void ReadChoice(Fields& fields, chat::ToolRequest& out) {
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  fields.IgnoreOthers("tool_choice", *choice,
                      {"type", "function", "name", "allowed_tools", "mode", "tools"});
  const std::string word = choice->is_string() ? choice->as_string() : "";
  const Json* type = choice->Find("type");
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
  if (word == "none") {
    out.choice.mode = ToolChoice::Mode::kNone;
  } else if (word == "required" || word == "any") {
    out.choice.mode = ToolChoice::Mode::kRequired;
  } else if (kind == "allowed_tools") {
    ReadAllowed(fields, *choice, out);
  } else if (kind == "function") {
    out.choice.mode = ToolChoice::Mode::kRequired;
    out.choice.name = NameOfChoice(*choice);
    if (out.choice.name.empty())
      fields.Fail("tool_choice", "'tool_choice' of type function needs the function's name");
  } else if (word != "auto") {
    fields.Fail("tool_choice",
                "'tool_choice' must be none, auto, required, or an object of type function or "
                "allowed_tools");
  }
}

void ReadTool(Fields& fields, const Json& tool, const std::string& where, ToolShape shape,
              std::vector<Tool>& out) {
  const Json* type = tool.Find("type");
  const bool is_function =
      type == nullptr || (type->is_string() && type->as_string() == "function");
  if (!is_function && shape == ToolShape::kFlat) return;
  const Json* function = shape == ToolShape::kFlat ? &tool : tool.Find("function");
  if (!is_function || function == nullptr) {
    return fields.FailUnsupported("tools",
                                  StrCat(where, ": only tools of type 'function' are supported"));
  }
  if (shape == ToolShape::kNested)
    fields.IgnoreOthers("tools", tool, {"type", "function", "cache_control", "strict"});
  fields.IgnoreOthers(shape == ToolShape::kFlat ? "tools" : "tools.function", *function,
                      {"type", "name", "description", "parameters", "strict", "cache_control"});
  const std::string inner = shape == ToolShape::kFlat ? where : where + ".function";
  if (auto read = ReadFunction(fields, *function, inner)) AddTool(fields, *std::move(read), out);
}

}  // namespace

std::optional<Tool> ReadFunction(Fields& fields, const Json& function, const std::string& where) {
  const Json *name = function.Find("name"), *description = function.Find("description"),
             *parameters = function.Find("parameters"), *strict = function.Find("strict");
  if (name == nullptr || !name->is_string() || !IsToolName(name->as_string())) {
    fields.Fail("tools", StrCat(where, ".name must be 1 to ", server::kToolNameBytesMax,
                                " letters, digits, '_', '-' or '.'"));
    return std::nullopt;
  }
  Tool tool{.name = name->as_string(), .description = ""};
  if (description != nullptr && description->is_string())
    tool.description = description->as_string();
  if (parameters != nullptr) tool.parameters = *parameters;
  if (parameters != nullptr && !parameters->is_object()) {
    fields.Fail("tools", StrCat(where, ".parameters must be a JSON schema, not a ",
                                parameters->type_name()));
    return std::nullopt;
  }
  tool.strict = strict != nullptr && strict->is_bool() && strict->as_bool();
  return tool;
}

void AddTool(Fields& fields, Tool tool, std::vector<Tool>& tools) {
  if (tools.size() == server::kToolsMax)
    return fields.Fail("tools", StrCat("'tools' has more than ", server::kToolsMax, " entries"));
  const bool twice = std::any_of(tools.begin(), tools.end(),
                                 [&](const Tool& other) { return other.name == tool.name; });
  if (twice) return fields.Fail("tools", StrCat("'tools' has '", tool.name, "' twice"));
  tools.push_back(std::move(tool));
}

void CheckChoice(Fields& fields, const chat::ToolRequest& request) {
  const ToolChoice& choice = request.choice;
  if (choice.mode != ToolChoice::Mode::kRequired) return;
  const bool found = std::any_of(request.tools.begin(), request.tools.end(), [&](const Tool& tool) {
    return choice.name.empty() || tool.name == choice.name;
  });
  if (!found)
    fields.Fail("tool_choice", choice.name.empty()
                                   ? "'tool_choice' wants a call, and there are no 'tools'"
                                   : StrCat("'tool_choice' names the tool '", choice.name,
                                            "', which 'tools' does not have"));
}

chat::ToolRequest ReadTools(Fields& fields, ToolShape shape) {
  chat::ToolRequest out;
  const Json* tools = fields.Find("tools");
  if (tools != nullptr && !tools->is_array()) fields.Fail("tools", "'tools' must be a list");
  if (tools != nullptr && tools->is_array()) {
    for (std::size_t i = 0; fields.ok() && i < tools->as_array().size(); ++i)
      ReadTool(fields, tools->as_array()[i], StrCat("tools[", i, "]"), shape, out.tools);
  }
  out.choice.parallel = fields.Bool("parallel_tool_calls", true);
  ReadChoice(fields, out);
  CheckChoice(fields, out);
  return out;
}

}  // namespace thermocline::protocol
