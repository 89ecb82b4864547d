#include "server/chat/tools.h"

namespace thermocline::chat {

Json ToolsJson(const std::vector<Tool>& tools) {
  Json::Array out;
  for (const Tool& tool : tools) {
    Json::Object function{{"name", tool.name}, {"description", tool.description}};
    const Json none = Json::Object{{"type", "object"}, {"properties", Json::Object{}}};
    function.emplace_back("parameters", tool.parameters.is_null() ? none : tool.parameters);
    out.push_back(Json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

std::string TypeOfParameter(const Json& schema, const std::string& name) {
  const Json* properties = schema.Find("properties");
  const Json* property = properties == nullptr ? nullptr : properties->Find(name);
  const Json* type = property == nullptr ? nullptr : property->Find("type");
  return type != nullptr && type->is_string() ? type->as_string() : "";
}

}  // namespace thermocline::chat
