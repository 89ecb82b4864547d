#include "engine/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "engine/grammar/schema_atoms.h"

namespace thermocline::grammar {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "object", "array",
                                                    "number", "integer", "string"};
// No answer has this many characters, items or members, so as a maximum it is no constraint.
constexpr double kCountMax = 2147483647;
bool IsSchema(const Json& value) { return value.is_object() || value.is_bool(); }

Json Both(const Json& a, const Json& b) {
  if (a.is_null()) return b;
  if (b.is_null() || a.Dump() == b.Dump()) return a;
  return Json::Object{{"allOf", Json::Array{a, b}}};
}

class Merger {
 public:
  explicit Merger(MergedSchema& out) : out_(out) {}

  Status Add(const Json& schema) {
    RETURN_IF_ERROR(AddTypes(schema));
    RETURN_IF_ERROR(AddEnumeration(schema));
    for (const auto& [keyword, one_of] : {std::pair("anyOf", false), {"oneOf", true}}) {
      const Json* alternatives = schema.Find(keyword);
      if (alternatives == nullptr) continue;
      if (!alternatives->is_array() || alternatives->as_array().empty())
        return MalformedSchema(keyword, "a list of schemas");
      out_.choices.push_back({one_of, alternatives->as_array()});
    }
    RETURN_IF_ERROR(AddObject(schema));
    RETURN_IF_ERROR(AddArray(schema));
    RETURN_IF_ERROR(AddString(schema));
    return AddNumber(schema);
  }

 private:
  Status AddTypes(const Json& schema) {
    const Json* type = schema.Find("type");
    if (type == nullptr) return OkStatus();
    const Json::Array list = type->is_array() ? type->as_array() : Json::Array{*type};
    std::vector<std::string> types;
    for (const Json& each : list) {
      const bool known = each.is_string() &&
                         std::find(kTypes.begin(), kTypes.end(), each.as_string()) != kTypes.end();
      if (!known)
        return MalformedSchema("type",
                               "null, boolean, object, array, number, integer, string or a list");
      types.push_back(each.as_string());
    }
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
    const auto has = [](const std::vector<std::string>& in, std::string_view name) {
      return std::find(in.begin(), in.end(), name) != in.end();
    };
    if (out_.types.empty()) {
      out_.types = types;
    } else {
      std::vector<std::string> both;
      for (const std::string& each : out_.types) {
        const bool whole = each == "number" && !has(types, "number") && has(types, "integer");
        if (has(types, each) || (each == "integer" && has(types, "number"))) both.push_back(each);
        if (whole && !has(both, "integer")) both.push_back("integer");
      }
      out_.types = both;
      out_.never = out_.never || both.empty();
    }
    if (has(out_.types, "number")) std::erase(out_.types, "integer");
    return OkStatus();
  }

  Status AddEnumeration(const Json& schema) {
    Json::Array values;
    if (const Json* constant = schema.FindRaw("const")) {
      values = {*constant};
    } else if (const Json* list = schema.Find("enum")) {
      if (!list->is_array() || list->as_array().empty())
        return MalformedSchema("enum", "a list of values");
      values = list->as_array();
    } else {
      return OkStatus();
    }
    if (out_.has_enum) {
      std::set<std::string> other;
      for (const Json& value : values) other.insert(value.Dump());
      std::erase_if(out_.enumeration,
                    [&](const Json& value) { return !other.contains(value.Dump()); });
    } else {
      out_.enumeration = values;
    }
    out_.has_enum = true;
    return OkStatus();
  }

  using Places = std::map<std::string, std::size_t, std::less<>>;
  static Places PlacesOf(const Json::Object& members) {
    Places places;
    for (std::size_t i = 0; i < members.size(); ++i) places.emplace(members[i].first, i);
    return places;
  }

  static void AddMember(Json::Object& members, Places& places, const std::string& name,
                        const Json& schema) {
    const auto [place, added] = places.emplace(name, members.size());
    if (added) {
      members.emplace_back(name, schema);
    } else {
      members[place->second].second = Both(members[place->second].second, schema);
    }
  }

  Status AddObject(const Json& schema) {
    Json::Object properties, patterns;
    for (const auto& [keyword, target] :
         {std::pair("properties", &properties), std::pair("patternProperties", &patterns)}) {
      const Json* members = schema.Find(keyword);
      if (members == nullptr) continue;
      if (!members->is_object()) return MalformedSchema(keyword, "an object of schemas");
      *target = members->as_object();
    }
    const Json* additional = schema.Find("additionalProperties");
    if (additional != nullptr && !IsSchema(*additional))
      return MalformedSchema("additionalProperties", "a schema");
    const bool restricts =
        additional != nullptr && !(additional->is_bool() && additional->as_bool());
    const bool others_restrict =
        !out_.additional.is_null() && !(out_.additional.is_bool() && out_.additional.as_bool());
    if ((restricts && !out_.pattern_properties.empty()) || (others_restrict && !patterns.empty()))
      return base::Unimplemented(
          "the schema's allOf of patternProperties with another's additionalProperties is not "
          "supported");
    if (restricts) {  // properties that only the other schemas name are additional here
      const Places named = PlacesOf(properties);
      for (auto& [name, value] : out_.properties)
        if (!named.contains(name)) value = Both(value, *additional);
    }
    Places places = PlacesOf(out_.properties), of_patterns = PlacesOf(out_.pattern_properties);
    for (const auto& [name, value] : properties) {
      const bool new_to_others = others_restrict && !places.contains(name);
      AddMember(out_.properties, places, name,
                new_to_others ? Both(value, out_.additional) : value);
    }
    for (const auto& [pattern, value] : patterns)
      AddMember(out_.pattern_properties, of_patterns, pattern, value);
    if (additional != nullptr) out_.additional = Both(out_.additional, *additional);
    if (const Json* rest = schema.Find("unevaluatedProperties")) {
      if (!rest->is_bool())
        return base::Unimplemented(
            "the schema's 'unevaluatedProperties' other than a boolean is not supported");
      out_.closed = out_.closed || !rest->as_bool();
    }
    if (const Json* property_names = schema.Find("propertyNames"))
      out_.property_names = Both(out_.property_names, *property_names);
    if (const Json* required = schema.Find("required")) {
      if (!required->is_array()) return MalformedSchema("required", "a list of names");
      std::set<std::string> there(out_.required.begin(), out_.required.end());
      for (const Json& name : required->as_array()) {
        if (!name.is_string()) return MalformedSchema("required", "a list of names");
        if (there.insert(name.as_string()).second) out_.required.push_back(name.as_string());
      }
    }
    RETURN_IF_ERROR(AddMin(schema, "minProperties", out_.min_properties));
    return AddMax(schema, "maxProperties", out_.max_properties);
  }

  Status AddArray(const Json& schema) {
    if (const Json* unique = schema.Find("uniqueItems")) {
      if (!unique->is_bool()) return MalformedSchema("uniqueItems", "a boolean");
      const Json* most = schema.Find("maxItems");
      const bool trivial = most != nullptr && most->is_number() && most->as_double() <= 1;
      if (unique->as_bool() && !trivial)
        return base::Unimplemented("the schema's 'uniqueItems' is not supported");
    }
    const Json* items = schema.Find("items");
    const Json* prefix = schema.Find("prefixItems");
    const Json* behind = items;
    if (items != nullptr && items->is_array()) {  // before 2020-12
      prefix = items;
      behind = schema.Find("additionalItems");
    }
    if (behind != nullptr && !IsSchema(*behind)) return MalformedSchema("items", "a schema");
    if (prefix != nullptr && !prefix->is_array())
      return MalformedSchema("prefixItems", "a list of schemas");
    const Json::Array none;
    const Json::Array& first = prefix == nullptr ? none : prefix->as_array();
    const std::size_t count = std::max(first.size(), out_.prefix_items.size());
    const auto at = [](const Json::Array& list, const Json& rest, std::size_t i) {
      return i < list.size() ? list[i] : rest;
    };
    const Json rest = behind == nullptr ? Json() : *behind;
    Json::Array joined;
    for (std::size_t i = 0; i < count; ++i)
      joined.push_back(Both(at(out_.prefix_items, out_.items, i), at(first, rest, i)));
    out_.prefix_items = joined;
    out_.items = Both(out_.items, rest);
    RETURN_IF_ERROR(AddMin(schema, "minItems", out_.min_items));
    return AddMax(schema, "maxItems", out_.max_items);
  }

  Status AddString(const Json& schema) {
    for (const auto& [keyword, list] :
         {std::pair("pattern", &out_.patterns), std::pair("format", &out_.formats)}) {
      const Json* value = schema.Find(keyword);
      if (value == nullptr) continue;
      if (!value->is_string()) return MalformedSchema(keyword, "a string");
      if (std::find(list->begin(), list->end(), value->as_string()) == list->end())
        list->push_back(value->as_string());
    }
    RETURN_IF_ERROR(AddMin(schema, "minLength", out_.min_length));
    return AddMax(schema, "maxLength", out_.max_length);
  }

  static Status AddBound(const Json& schema, const char* keyword, bool largest, Json& bound) {
    const Json* value = schema.Find(keyword);
    if (value == nullptr) return OkStatus();
    if (!value->is_number()) return MalformedSchema(keyword, "a number");
    const bool tighter = bound.is_null() || (value->as_double() > bound.as_double()) == largest;
    if (tighter) bound = *value;
    return OkStatus();
  }

  Status AddNumber(const Json& schema) {
    Json plain = schema;
    // Before draft 6 these keywords were flags that made the plain bound exclusive.
    for (const auto& [exclusive, bound] :
         {std::pair("exclusiveMinimum", "minimum"), {"exclusiveMaximum", "maximum"}}) {
      const Json* flag = schema.Find(exclusive);
      if (flag == nullptr || !flag->is_bool()) continue;
      const Json* value = schema.Find(bound);
      plain.Set(exclusive, flag->as_bool() && value != nullptr ? *value : Json());
      if (flag->as_bool()) plain.Set(bound, Json());
    }
    RETURN_IF_ERROR(AddBound(plain, "minimum", true, out_.minimum));
    RETURN_IF_ERROR(AddBound(plain, "maximum", false, out_.maximum));
    RETURN_IF_ERROR(AddBound(plain, "exclusiveMinimum", true, out_.exclusive_minimum));
    RETURN_IF_ERROR(AddBound(plain, "exclusiveMaximum", false, out_.exclusive_maximum));
    const Json* multiple = schema.Find("multipleOf");
    if (multiple == nullptr) return OkStatus();
    if (!multiple->is_number() || !(multiple->as_double() > 0))
      return MalformedSchema("multipleOf", "a number above 0");
    const double value = multiple->as_double();
    if (value != std::floor(value) || value > 1e6)
      return base::Unimplemented("the schema's 'multipleOf' ", multiple->Dump(),
                                 " is not supported; whole numbers to 2000 are");
    const auto whole = static_cast<std::int64_t>(value);
    out_.multiple_of = out_.multiple_of == 0 ? whole : std::lcm(out_.multiple_of, whole);
    return OkStatus();
  }

  static Result<std::int64_t> Count(const Json& schema, const char* keyword, std::int64_t absent) {
    const Json* value = schema.Find(keyword);
    if (value == nullptr) return absent;
    const bool whole = value->is_number() && value->as_double() >= 0 &&
                       value->as_double() == std::floor(value->as_double());
    if (!whole) return MalformedSchema(keyword, "a whole number of at least 0");
    return static_cast<std::int64_t>(std::min(value->as_double(), kCountMax));
  }
  static Status AddMin(const Json& schema, const char* keyword, std::int64_t& min) {
    ASSIGN_OR_RETURN(const std::int64_t value, Count(schema, keyword, 0));
    min = std::max(min, value);
    return OkStatus();
  }
  static Status AddMax(const Json& schema, const char* keyword, std::int64_t& max) {
    ASSIGN_OR_RETURN(const std::int64_t value, Count(schema, keyword, -1));
    if (value < 0 || static_cast<double>(value) >= kCountMax) return OkStatus();
    max = max < 0 ? value : std::min(max, value);
    return OkStatus();
  }

  MergedSchema& out_;
};

}  // namespace

Result<MergedSchema> MergeSchema(const Json& schema, const Json& root, Budget& budget) {
  SchemaAtoms atoms(root, budget);
  RETURN_IF_ERROR(atoms.Collect(schema));
  MergedSchema out;
  out.never = atoms.never();
  Merger merger(out);
  for (const Json* each : atoms.found()) RETURN_IF_ERROR(merger.Add(*each));
  return out;
}

Json ToJson(const MergedSchema& s) {
  if (s.never) return Json(false);
  Json::Object out;
  const auto strings = [](const std::vector<std::string>& list) {
    return Json(Json::Array(list.begin(), list.end()));
  };
  if (!s.types.empty()) out.emplace_back("type", strings(s.types));
  if (s.has_enum) out.emplace_back("enum", s.enumeration);
  Json::Array all;
  for (const MergedSchema::Choice& choice : s.choices)
    all.push_back(Json::Object{{choice.one_of ? "oneOf" : "anyOf", choice.alternatives}});
  for (const std::string& each : s.patterns) all.push_back(Json::Object{{"pattern", each}});
  for (const std::string& each : s.formats) all.push_back(Json::Object{{"format", each}});
  if (!all.empty()) out.emplace_back("allOf", std::move(all));
  if (!s.properties.empty()) out.emplace_back("properties", s.properties);
  if (!s.pattern_properties.empty()) out.emplace_back("patternProperties", s.pattern_properties);
  if (!s.additional.is_null()) out.emplace_back("additionalProperties", s.additional);
  if (s.closed) out.emplace_back("unevaluatedProperties", false);
  if (!s.property_names.is_null()) out.emplace_back("propertyNames", s.property_names);
  if (!s.required.empty()) out.emplace_back("required", strings(s.required));
  if (!s.prefix_items.empty()) out.emplace_back("prefixItems", s.prefix_items);
  if (!s.items.is_null()) out.emplace_back("items", s.items);
  for (const auto& [name, value, absent] : {std::tuple("minProperties", s.min_properties, 0),
                                            {"maxProperties", s.max_properties, -1},
                                            {"minItems", s.min_items, 0},
                                            {"maxItems", s.max_items, -1},
                                            {"minLength", s.min_length, 0},
                                            {"maxLength", s.max_length, -1},
                                            {"multipleOf", s.multiple_of, 0}})
    if (value != absent) out.emplace_back(name, value);
  for (const auto& [name, value] : {std::pair("minimum", &s.minimum),
                                    {"maximum", &s.maximum},
                                    {"exclusiveMinimum", &s.exclusive_minimum},
                                    {"exclusiveMaximum", &s.exclusive_maximum}})
    if (!value->is_null()) out.emplace_back(name, *value);
  return out;
}

}  // namespace thermocline::grammar
