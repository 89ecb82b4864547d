#include "engine/grammar/schema_disjoint.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "engine/grammar/json_strings.h"

namespace thermocline::grammar {
namespace {

std::string TypeOf(const Json& value) {
  if (value.is_number())
    return value.as_double() == std::floor(value.as_double()) ? "integer" : "number";
  return std::string(value.type_name());
}

bool Has(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Returns a text by which values are compared: numbers by value, others by their JSON.
std::string Canonical(const Json& value) {
  return value.is_number() ? base::FormatDouble(value.as_double()) : value.Dump();
}

bool InBounds(const Json& value, const MergedSchema& s) {
  const double x = value.as_double();
  return (s.minimum.is_null() || x >= s.minimum.as_double()) &&
         (s.maximum.is_null() || x <= s.maximum.as_double()) &&
         (s.exclusive_minimum.is_null() || x > s.exclusive_minimum.as_double()) &&
         (s.exclusive_maximum.is_null() || x < s.exclusive_maximum.as_double()) &&
         (s.multiple_of == 0 || std::fmod(x, static_cast<double>(s.multiple_of)) == 0);
}

const Json* Member(const Json::Object& members, const std::string& name) {
  for (const auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

// The values that a sub-schema allows, if it lists them.
std::vector<std::string> ValuesOf(const Json& schema) {
  std::vector<std::string> out;
  if (const Json* constant = schema.FindRaw("const")) {
    out.push_back(Canonical(*constant));
  } else if (const Json* list = schema.Find("enum"); list != nullptr && list->is_array()) {
    for (const Json& each : list->as_array()) out.push_back(Canonical(each));
  }
  return out;
}

bool NoneShared(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return !a.empty() && !b.empty() &&
         std::none_of(a.begin(), a.end(),
                      [in_b = std::set<std::string_view>(b.begin(), b.end())](
                          const std::string& each) { return in_b.contains(each); });
}

bool IsClosed(const MergedSchema& s) {
  const bool open = !s.additional.is_null() && !(s.additional.is_bool() && !s.additional.as_bool());
  return !open && !s.properties.empty() && s.pattern_properties.empty();
}

using Names = std::set<std::string_view>;

Names NamesOf(const Json::Object& members) {
  Names names;
  for (const auto& [name, value] : members) names.insert(name);
  return names;
}

bool ObjectsDisjoint(const MergedSchema& a, const MergedSchema& b) {
  const Names by_a(a.required.begin(), a.required.end()),
      by_b(b.required.begin(), b.required.end());
  const Names of_a = NamesOf(a.properties), of_b = NamesOf(b.properties);
  for (const auto& [name, schema] : a.properties) {
    if (!by_a.contains(name) || !by_b.contains(name) || !of_b.contains(name)) continue;
    const Json* other = Member(b.properties, name);
    if (NoneShared(ValuesOf(schema), ValuesOf(*other))) return true;
  }
  // One schema requires a property that the other, as generated here, never has. A validator allows
  // more in a schema that does not close itself explicitly, so that schema must.
  const auto forbids = [](const MergedSchema& s, const Names& has, const Names& required) {
    const bool said = s.closed || (s.additional.is_bool() && !s.additional.as_bool());
    return said && IsClosed(s) &&
           !std::includes(has.begin(), has.end(), required.begin(), required.end());
  };
  return forbids(b, of_b, by_a) || forbids(a, of_a, by_b);
}

bool NumbersDisjoint(const MergedSchema& a, const MergedSchema& b) {
  const auto below = [](const MergedSchema& low, const MergedSchema& high) {
    for (const Json* max : {&low.maximum, &low.exclusive_maximum}) {
      for (const Json* min : {&high.minimum, &high.exclusive_minimum}) {
        if (max->is_null() || min->is_null()) continue;
        const bool strict = max == &low.exclusive_maximum || min == &high.exclusive_minimum;
        if (max->as_double() < min->as_double() || (strict && max->as_double() == min->as_double()))
          return true;
      }
    }
    return false;
  };
  return below(a, b) || below(b, a);
}

}  // namespace

std::vector<std::string> TypesOf(const MergedSchema& s) {
  if (!s.types.empty()) return s.types;
  std::vector<std::string> out;
  if (!s.properties.empty() || !s.pattern_properties.empty() || !s.additional.is_null() ||
      !s.required.empty() || !s.property_names.is_null() || s.min_properties > 0 ||
      s.max_properties >= 0 || s.closed)
    out.emplace_back("object");
  if (!s.items.is_null() || !s.prefix_items.empty() || s.min_items > 0 || s.max_items >= 0)
    out.emplace_back("array");
  if (!s.patterns.empty() || !s.formats.empty() || s.min_length > 0 || s.max_length >= 0)
    out.emplace_back("string");
  if (!s.minimum.is_null() || !s.maximum.is_null() || !s.exclusive_minimum.is_null() ||
      !s.exclusive_maximum.is_null() || s.multiple_of != 0)
    out.emplace_back("number");
  if (out.empty()) return {"object", "array", "string", "number", "boolean", "null"};
  return out;
}

Result<bool> Satisfies(const Json& value, const MergedSchema& s, Budget& budget) {
  const std::string type = TypeOf(value);
  if (!s.types.empty() && !Has(s.types, type) && !(type == "integer" && Has(s.types, "number")))
    return false;
  if (value.is_number()) return InBounds(value, s);
  if (value.is_string()) {
    const StringBounds bounds{.patterns = s.patterns,
                              .formats = s.formats,
                              .min_length = s.min_length,
                              .max_length = std::min(s.max_length, kLengthsMax)};
    if (bounds.any()) return true;
    ASSIGN_OR_RETURN(const Dfa content, ContentOf(bounds, budget));
    return Accepts(content, value.as_string());
  }
  const bool speaks_of_parts = !s.properties.empty() || !s.required.empty() || !s.items.is_null() ||
                               !s.prefix_items.empty() || !s.additional.is_null() ||
                               !s.pattern_properties.empty() || s.min_items > 0 ||
                               s.max_items >= 0 || s.min_properties > 0 || s.max_properties >= 0 ||
                               !s.property_names.is_null();
  if ((value.is_object() || value.is_array()) && speaks_of_parts)
    return base::Unimplemented(
        "the schema's 'enum' or 'const' of objects or lists beside keywords for their parts is not "
        "supported");
  return true;
}

bool AreDisjoint(const MergedSchema& a, const MergedSchema& b) {
  if (a.never || b.never) return true;
  if (a.has_enum && b.has_enum) {
    std::vector<std::string> first, second;
    for (const Json& each : a.enumeration) first.push_back(Canonical(each));
    for (const Json& each : b.enumeration) second.push_back(Canonical(each));
    return NoneShared(first, second);
  }
  const auto types = [](const MergedSchema& s) {
    std::set<std::string> of_values;
    for (const Json& each : s.enumeration) of_values.insert(TypeOf(each));
    return s.has_enum ? std::vector<std::string>(of_values.begin(), of_values.end()) : s.types;
  };
  const std::vector<std::string> first = types(a), second = types(b);
  // Without a type, keywords for objects are satisfied by any value that is not an object, and so
  // on.
  if (first.empty() || second.empty()) return false;
  bool object = false, number = false, other = false;
  for (const std::string& each : first) {
    const bool numeric = each == "number" || each == "integer";
    const bool shared = numeric ? Has(second, "number") ||
                                      (each == "integer" && Has(second, "integer")) ||
                                      (each == "number" && Has(second, "integer"))
                                : Has(second, each);
    object |= shared && each == "object";
    number |= shared && numeric;
    other |= shared && each != "object" && !numeric;
  }
  if (other || (object && !ObjectsDisjoint(a, b)) || (number && !NumbersDisjoint(a, b)))
    return false;
  return true;
}

}  // namespace thermocline::grammar
