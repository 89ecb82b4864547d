#include "server/chat/tools.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/grammar/schema_atoms.h"

namespace thermocline::chat {
namespace {

constexpr const char* kRootName = "thermocline_root";

bool HasReference(const Json& schema) {
  if (schema.is_array())
    return std::any_of(schema.as_array().begin(), schema.as_array().end(), HasReference);
  if (!schema.is_object()) return false;
  return std::any_of(schema.as_object().begin(), schema.as_object().end(), [](const auto& member) {
    return member.first == "$ref" || HasReference(member.second);
  });
}

// The schema with its references into the root as they are where the root is a definition.
Json Moved(const Json& schema) {
  if (schema.is_array()) {
    Json::Array out;
    for (const Json& each : schema.as_array()) out.push_back(Moved(each));
    return out;
  }
  if (!schema.is_object()) return schema;
  Json::Object out;
  for (const auto& [key, value] : schema.as_object()) {
    const bool moves = key == "$ref" && value.is_string() && value.as_string().starts_with('#');
    out.emplace_back(key, moves ? Json(StrCat("#/$defs/", kRootName, value.as_string().substr(1)))
                                : Moved(value));
  }
  return out;
}

}  // namespace

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

Json ParameterSchema(const Json& parameters, const std::string& name) {
  const Json& own = *parameters.Find("properties")->Find(name);
  if (!HasReference(own)) return own;
  Json out = Moved(own);
  if (!out.is_object()) return out;
  const Json* definitions = out.Find("$defs");
  Json all = definitions == nullptr ? Json(Json::Object{}) : *definitions;
  all.Set(kRootName, Moved(parameters));
  out.Set("$defs", std::move(all));
  return out;
}

std::string TypeOfParameter(const Json& parameters, const std::string& name) {
  const Json* properties = parameters.Find("properties");
  const Json* property = properties == nullptr ? nullptr : properties->Find(name);
  constexpr int kReferencesMax = 16;
  for (int i = 0; i < kReferencesMax && property != nullptr; ++i) {
    const Json* reference = property->Find("$ref");
    if (reference == nullptr || !reference->is_string()) break;
    property = grammar::FindReference(parameters, reference->as_string());
  }
  if (property == nullptr) return "";
  const Json *type = property->Find("type"), *values = property->Find("enum"),
             *value = property->Find("const");
  if (type != nullptr && type->is_string()) return type->as_string();
  if (type != nullptr && type->is_array() && type->as_array().size() == 1 &&
      type->as_array()[0].is_string())
    return type->as_array()[0].as_string();
  if (type != nullptr) return "";
  const auto is_string = [](const Json& each) { return each.is_string(); };
  const bool strings = values != nullptr && values->is_array() && !values->as_array().empty() &&
                       std::all_of(values->as_array().begin(), values->as_array().end(), is_string);
  return strings || (value != nullptr && value->is_string()) ? "string" : "";
}

}  // namespace thermocline::chat
