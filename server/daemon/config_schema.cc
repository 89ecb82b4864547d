#include "server/daemon/config_schema.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/daemon/config_keys.h"

namespace thermocline::server {
namespace {

Json::Array NamesOf(const auto& names, bool optional) {
  Json::Array out;
  if (optional) out.emplace_back("");
  for (const auto& name : names) out.emplace_back(std::string_view(name));
  return out;
}

// Appends the range's limits, except those of the type itself.
template <typename T>
Json::Object WithRange(Json::Object schema, T min, T max) {
  if (min != std::numeric_limits<T>::lowest()) schema.emplace_back("minimum", min);
  if (max != std::numeric_limits<T>::max()) schema.emplace_back("maximum", max);
  return schema;
}

Json::Object SchemaOf(const IntValue& v) {
  return WithRange({{"type", "integer"}, {"default", *v.target}}, v.min, v.max);
}
Json::Object SchemaOf(const UnsignedValue& v) {
  return {{"type", "integer"}, {"default", Json::OfUnsigned(*v.target)}, {"minimum", 0}};
}
Json::Object SchemaOf(const DoubleValue& v) {
  return WithRange({{"type", "number"}, {"default", *v.target}}, v.min, v.max);
}
Json::Object SchemaOf(const BoolValue& v) { return {{"type", "boolean"}, {"default", *v.target}}; }
Json::Object SchemaOf(const BytesValue& v) {
  const Json bytes = Json::Object{{"type", "integer"}, {"minimum", v.min}};
  const Json size = Json::Object{{"type", "string"}, {"pattern", "^[0-9]"}};
  return {{"anyOf", Json::Array{bytes, size}}, {"default", *v.target}};
}
Json::Object SchemaOf(const MebibytesValue& v) {
  const std::int64_t mib = *v.target < 0 ? *v.target : *v.target >> 20;
  return WithRange({{"type", "integer"}, {"default", mib}}, v.min, v.max);
}
Json::Object SchemaOf(const TextValue& v) {
  Json::Object schema{{"type", "string"}, {"default", *v.target}};
  if (!v.choices.empty()) schema.emplace_back("enum", NamesOf(v.choices, v.optional));
  return schema;
}
Json::Object SchemaOf(const ChoiceValue& v) {
  return {{"type", "string"}, {"default", v.name()}, {"enum", NamesOf(v.names, v.optional)}};
}
Json::Object SchemaOf(const OptionValue& value) {
  return std::visit([](const auto& v) { return SchemaOf(v); }, value);
}
Json::Object SchemaOf(const BordersKey&) { return {{"type", "string"}, {"default", ""}}; }
Json::Object SchemaOf(const ModelsOwnKey& v) {
  const Json number = Json::Object{{"type", v.field->whole != nullptr ? "integer" : "number"},
                                   {"minimum", v.field->range.min},
                                   {"maximum", v.field->range.max}};
  const Json own = Json::Object{{"const", "model"}};
  return {{"anyOf", Json::Array{number, own}}, {"default", "model"}};
}

Json Closed(Json::Object properties) {
  return Json::Object{
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
}

// The list of models: each has the sections that are not the daemon's.
Json ModelsSchema(const Json::Object& sections) {
  const Json text = Json::Object{{"type", "string"}};
  Json::Object entry{
      {"path", text},
      {"name", text},
      {"aliases", Json::Object{{"type", Json::Array{"string", "array"}}, {"items", text}}},
      {"pinned", Json::Object{{"type", "boolean"}, {"default", false}}},
      {"keep_alive", Json::Object{{"type", Json::Array{"string", "integer"}}, {"default", -1}}}};
  for (const auto& [name, schema] : sections)
    if (name != "model" && name != "server" && name != "grpc" && name != "metrics" && name != "log")
      entry.emplace_back(name, schema);
  Json item = Closed(std::move(entry));
  item.Set("required", Json::Array{"path"});
  return Json::Object{{"type", "array"}, {"minItems", 1}, {"items", std::move(item)}};
}

}  // namespace

Json ConfigSchema() {
  ServerConfig config;
  std::vector<std::pair<std::string, Json::Object>> sections;
  for (const Key& key : KeysOf(config)) {
    const std::size_t dot = key.name.find('.');
    const std::string section = key.name.substr(0, dot);
    Json::Object schema = std::visit([](const auto& k) { return SchemaOf(k); }, key.kind);
    if (key.reloadable) schema.emplace_back("x-reloadable", true);
    auto at = std::find_if(sections.begin(), sections.end(),
                           [&](const auto& s) { return s.first == section; });
    if (at == sections.end()) at = sections.insert(at, {section, {}});
    at->second.emplace_back(key.name.substr(dot + 1), std::move(schema));
  }
  Json::Object properties;
  for (auto& [name, members] : sections) properties.emplace_back(name, Closed(std::move(members)));
  properties.emplace_back("models", ModelsSchema(properties));
  Json schema = Closed(std::move(properties));
  schema.Set("$schema", "https://json-schema.org/draft/2020-12/schema");
  schema.Set("title", "Configuration of thermoclined");
  return schema;
}

}  // namespace thermocline::server
