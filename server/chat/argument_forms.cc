#include "server/chat/argument_forms.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/grammar/json_strings.h"
#include "engine/grammar/schema_atoms.h"
#include "engine/grammar/schema_disjoint.h"
#include "engine/grammar/schema_merge.h"

namespace thermocline::chat {
namespace {

using grammar::MergedSchema;

constexpr std::size_t kFormsMax = 64;
constexpr std::int64_t kCountMax = 16;
// Pattern for keys that the schema does not name; every call format can write these.
constexpr const char* kAnyKey = "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$";

// The budget for tools' schemas here; the grammar has its own.
grammar::Budget SmallBudget() { return {50'000, 1.0, 32 << 20}; }

bool HasReference(const Json& schema) {
  if (schema.is_array())
    return std::any_of(schema.as_array().begin(), schema.as_array().end(), HasReference);
  if (!schema.is_object()) return false;
  return std::any_of(schema.as_object().begin(), schema.as_object().end(), [](const auto& member) {
    return member.first == "$ref" || HasReference(member.second);
  });
}

// The schema, with its references to the root pointing to the definition that holds the root.
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
    out.emplace_back(
        key, moves ? Json(StrCat("#/$defs/", grammar::kOuterSchema, value.as_string().substr(1)))
                   : Moved(value));
  }
  return out;
}

// A part of `root` as a self-contained schema.
Json Alone(const Json& own, const Json& root) {
  if (!HasReference(own)) return own;
  Json out = Moved(own);
  const Json* definitions = out.Find("$defs");
  Json all = definitions == nullptr ? Json(Json::Object{}) : *definitions;
  all.Set(std::string(grammar::kOuterSchema), Moved(root));
  out.Set("$defs", std::move(all));
  return out;
}

bool IsFalse(const Json& schema) { return schema.is_bool() && !schema.as_bool(); }

class Forms {
 public:
  explicit Forms(const Json& root) : root_(root), budget_(SmallBudget()) {}

  Result<std::vector<ArgumentForm>> Run() {
    RETURN_IF_ERROR(Add(root_));
    if (out_.empty()) return base::InvalidArgument("the tool's parameters allow no object");
    return std::move(out_);
  }

 private:
  Status Add(const Json& schema) {
    ASSIGN_OR_RETURN(MergedSchema merged, grammar::MergeSchema(schema, root_, budget_));
    const auto types = grammar::TypesOf(merged);
    const bool object = std::find(types.begin(), types.end(), "object") != types.end();
    if (merged.never || !object) return OkStatus();
    if (!merged.choices.empty()) return AddChoice(std::move(merged));
    if (out_.size() == kFormsMax)
      return base::Unimplemented("a tool's parameters with more than ", kFormsMax,
                                 " alternatives are not supported");
    return merged.has_enum ? AddValues(merged) : AddKeys(merged);
  }

  Status AddChoice(MergedSchema merged) {
    const MergedSchema::Choice choice = merged.choices.front();
    merged.choices.erase(merged.choices.begin());
    const Json rest = grammar::ToJson(merged);
    std::vector<MergedSchema> before;
    for (const Json& each : choice.alternatives) {
      const Json with = Json::Object{{"allOf", Json::Array{rest, each}}};
      ASSIGN_OR_RETURN(const MergedSchema one, grammar::MergeSchema(with, root_, budget_));
      const bool apart = std::all_of(before.begin(), before.end(), [&one](const auto& other) {
        return grammar::AreDisjoint(other, one);
      });
      if (choice.one_of && !apart)
        return base::Unimplemented(
            "the tool's 'oneOf': a value might satisfy two alternatives; use anyOf, or tell them "
            "apart by a required property's const or enum");
      before.push_back(one);
      RETURN_IF_ERROR(Add(with));
    }
    return OkStatus();
  }

  // Adds each object of an enumeration as a form.
  Status AddValues(const MergedSchema& merged) {
    for (const Json& value : merged.enumeration) {
      ASSIGN_OR_RETURN(const bool fits, grammar::Satisfies(value, merged, budget_));
      if (!fits || !value.is_object()) continue;
      ArgumentForm form;
      for (const auto& [name, member] : value.as_object())
        form.keys.push_back({name, Json::Object{{"const", member}}, true});
      out_.push_back(std::move(form));
    }
    return OkStatus();
  }

  Status AddKeys(const MergedSchema& merged) {
    ArgumentForm form{.min = merged.min_properties, .max = merged.max_properties};
    for (const auto& [name, schema] : merged.properties)
      RETURN_IF_ERROR(AddKey(merged, name, &schema, form));
    for (const std::string& name : merged.required) {
      const bool there = std::any_of(merged.properties.begin(), merged.properties.end(),
                                     [&](const auto& member) { return member.first == name; });
      if (!there) RETURN_IF_ERROR(AddKey(merged, name, nullptr, form));
    }
    AddOthers(merged, form);
    const auto required = std::count_if(form.keys.begin(), form.keys.end(),
                                        [](const auto& key) { return key.required; });
    if (form.min <= required) form.min = 0;
    const bool repeats = form.min > std::max<std::int64_t>(1, required) && !form.others.empty();
    if (repeats || form.min > kCountMax || (form.max > kCountMax && !form.others.empty()))
      return base::Unimplemented(
          "minProperties and maxProperties of keys that have no name are not supported here; name "
          "them in properties");
    if (form.max >= static_cast<std::int64_t>(form.keys.size()) && form.others.empty())
      form.max = -1;
    out_.push_back(std::move(form));
    return OkStatus();
  }

  // Adds the key with all schemas for its name; adds nothing if no such key is allowed.
  Status AddKey(const MergedSchema& merged, const std::string& name, const Json* own,
                ArgumentForm& form) {
    const bool required =
        std::find(merged.required.begin(), merged.required.end(), name) != merged.required.end();
    Json::Array all;
    if (own != nullptr) all.push_back(*own);
    for (const auto& [pattern, schema] : merged.pattern_properties) {
      ASSIGN_OR_RETURN(const grammar::Dfa names, grammar::ContentOfPattern(pattern, budget_));
      if (grammar::Accepts(names, name)) all.push_back(schema);
    }
    const bool closed = merged.closed || IsFalse(merged.additional);
    bool allowed = !all.empty() || !closed;
    if (all.empty()) all.push_back(merged.additional.is_null() ? Json(true) : merged.additional);
    if (!merged.property_names.is_null()) {
      ASSIGN_OR_RETURN(const MergedSchema names,
                       grammar::MergeSchema(merged.property_names, root_, budget_));
      ASSIGN_OR_RETURN(const bool fits, NameFits(name, names));
      allowed = allowed && fits;
    }
    allowed = allowed && std::none_of(all.begin(), all.end(), IsFalse);
    if (!allowed && !required) return OkStatus();
    if (!allowed)
      return base::InvalidArgument("the tool's parameters require '", name,
                                   "', which they do not allow");
    Json schema = all.size() == 1 ? all[0] : Json(Json::Object{{"allOf", std::move(all)}});
    form.keys.push_back({name, Alone(schema, root_), required});
    return OkStatus();
  }

  Result<bool> NameFits(const std::string& name, const MergedSchema& names) {
    if (names.never || !names.choices.empty() || names.has_enum)
      return base::Unimplemented(
          "'propertyNames' other than a pattern, a format and lengths is not supported");
    ASSIGN_OR_RETURN(const grammar::Dfa content,
                     grammar::ContentOf({.patterns = names.patterns,
                                         .formats = names.formats,
                                         .min_length = names.min_length,
                                         .max_length = names.max_length},
                                        budget_));
    return grammar::Accepts(content, name);
  }

  // If there are patterns, keys that match none are omitted: such keys are optional.
  void AddOthers(const MergedSchema& merged, ArgumentForm& form) {
    const auto add = [&](Json names, const Json& schema) {
      Json::Array all{Json::Object{{"type", "string"}}, std::move(names)};
      if (!merged.property_names.is_null()) all.push_back(Alone(merged.property_names, root_));
      form.others.push_back({Json::Object{{"allOf", std::move(all)}}, Alone(schema, root_)});
    };
    for (const auto& [pattern, schema] : merged.pattern_properties)
      if (!IsFalse(schema)) add(Json::Object{{"pattern", pattern}}, schema);
    const Json any = merged.additional.is_null() ? Json(true) : merged.additional;
    const bool open = !merged.closed && (!merged.additional.is_null() || merged.properties.empty());
    if (merged.pattern_properties.empty() && open && !IsFalse(any))
      add(Json::Object{{"pattern", kAnyKey}}, any);
  }

  const Json& root_;
  grammar::Budget budget_;
  std::vector<ArgumentForm> out_;
};

std::string TypeOf(const Json& schema, const Json& root) {
  grammar::Budget budget = SmallBudget();
  const auto merged = grammar::MergeSchema(schema, root, budget);
  if (!merged.ok() || !merged->choices.empty()) return "";
  if (merged->types.size() == 1) return merged->types[0];
  const auto& values = merged->enumeration;
  const bool strings =
      merged->types.empty() && !values.empty() &&
      std::all_of(values.begin(), values.end(), [](const Json& each) { return each.is_string(); });
  return strings ? "string" : "";
}

// True if `properties` describes the parameters completely.
bool IsPlain(const Json& parameters) {
  for (const char* keyword : {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"})
    if (parameters.Find(keyword) != nullptr) return false;
  return true;
}

}  // namespace

Result<std::vector<ArgumentForm>> FormsOfArguments(const Json& parameters) {
  return Forms(parameters).Run();
}

std::string TypeOfSchema(const Json& schema) { return TypeOf(schema, schema); }

std::string TypeOfParameter(const Json& parameters, const std::string& name) {
  const Json* properties = parameters.Find("properties");
  const Json* property = properties == nullptr ? nullptr : properties->Find(name);
  if (property != nullptr && IsPlain(parameters)) return TypeOf(*property, parameters);
  const auto forms = FormsOfArguments(parameters);
  if (!forms.ok()) return property == nullptr ? "" : TypeOf(*property, parameters);
  std::string type;
  for (const ArgumentForm& form : *forms) {
    const auto key = std::find_if(form.keys.begin(), form.keys.end(),
                                  [&](const auto& each) { return each.name == name; });
    std::vector<Json> schemas;
    if (key != form.keys.end()) schemas.push_back(key->schema);
    if (key == form.keys.end())
      for (const auto& others : form.others) schemas.push_back(others.schema);
    for (const Json& schema : schemas) {
      const std::string one = TypeOfSchema(schema);
      if (one.empty() || (!type.empty() && type != one)) return "";
      type = one;
    }
  }
  return type;
}

}  // namespace thermocline::chat
