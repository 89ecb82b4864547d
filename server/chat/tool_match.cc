#include "server/chat/tool_match.h"

#include <algorithm>

#include "server/chat/argument_forms.h"
#include "server/chat/json_scan.h"
#include "server/chat/message_json.h"

namespace thermocline::chat {
namespace {

const Tool* ToolNamed(std::string_view name, const std::vector<Tool>& tools) {
  const auto found = std::find_if(tools.begin(), tools.end(),
                                  [name](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

std::string_view WithoutLineBreaks(std::string_view raw) {
  for (const std::string_view line : {"\r\n", "\n"}) {
    if (!raw.starts_with(line)) continue;
    raw.remove_prefix(line.size());
    break;
  }
  for (const std::string_view line : {"\r\n", "\n"}) {
    if (!raw.ends_with(line)) continue;
    raw.remove_suffix(line.size());
    break;
  }
  return raw;
}

}  // namespace

const Tool* FindTool(std::string_view name, const std::vector<Tool>& tools) {
  if (const Tool* tool = ToolNamed(name, tools)) return tool;
  for (const std::string_view prefix : {"functions.", "default_api."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (const Tool* tool = ToolNamed(name, tools)) return tool;
  const std::size_t colon = name.rfind(':');
  const bool numbered = colon != kNowhere && colon + 1 < name.size() &&
                        name.find_first_not_of("0123456789", colon + 1) == kNowhere;
  return numbered ? ToolNamed(name.substr(0, colon), tools) : nullptr;
}

std::vector<std::string> RequiredOf(const Tool& tool) {
  std::vector<std::string> out;
  const Json* required = tool.parameters.Find("required");
  if (required == nullptr || !required->is_array()) return out;
  for (const Json& each : required->as_array()) out.push_back(TextOf(&each));
  return out;
}

bool HasParameter(const Tool& tool, std::string_view name) {
  const Json* properties = tool.parameters.Find("properties");
  return properties != nullptr && properties->FindRaw(name) != nullptr;
}

std::string OnlyParameter(const Tool& tool) {
  const Json* properties = tool.parameters.Find("properties");
  const bool one =
      properties != nullptr && properties->is_object() && properties->as_object().size() == 1;
  return one ? properties->as_object()[0].first : "";
}

bool FitsSchema(const Tool& tool, const Json& arguments) {
  for (const std::string& name : RequiredOf(tool))
    if (arguments.FindRaw(name) == nullptr) return false;
  return std::all_of(arguments.as_object().begin(), arguments.as_object().end(),
                     [&](const auto& member) { return HasParameter(tool, member.first); });
}

Json TaggedValue(const Tool& tool, const std::string& key, std::string_view raw) {
  raw = WithoutLineBreaks(raw);
  if (TypeOfParameter(tool, key) == "string") return std::string(raw);
  auto value = base::ParseJson(raw);
  if (value.ok()) return *std::move(value);
  if (raw == "True" || raw == "False") return raw == "True";
  if (raw == "None") return nullptr;
  return std::string(raw);
}

}  // namespace thermocline::chat
