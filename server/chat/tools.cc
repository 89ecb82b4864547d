#include "server/chat/tools.h"

namespace thermocline::chat {

Json ToolsJson(const std::vector<Tool>& tools) {
  Json::Array out;
  for (const Tool& tool : tools) {
    if (!tool.listed) continue;
    Json::Object function{{"name", tool.name}, {"description", tool.description}};
    const Json none = Json::Object{{"type", "object"}, {"properties", Json::Object{}}};
    function.emplace_back("parameters", tool.parameters.is_null() ? none : tool.parameters);
    out.push_back(Json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

}  // namespace thermocline::chat
