#include "server/chat/argument_forms.h"

#include <algorithm>
#include <map>
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
  Forms(const Json& root, grammar::Budget& budget) : root_(root), budget_(budget) {}

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
    RETURN_IF_ERROR(AddOthers(merged, form));
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
    RETURN_IF_ERROR(budget_.CheckTime());
    const bool required =
        std::find(merged.required.begin(), merged.required.end(), name) != merged.required.end();
    Json::Array all;
    if (own != nullptr) all.push_back(*own);
    for (const auto& [pattern, schema] : merged.pattern_properties) {
      ASSIGN_OR_RETURN(const bool matches, Matches(pattern, name));
      if (matches) all.push_back(schema);
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
    ASSIGN_OR_RETURN(Json alone, AloneWithin(schema));
    form.keys.push_back({name, std::move(alone), required});
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
  Status AddOthers(const MergedSchema& merged, ArgumentForm& form) {
    const auto add = [&](Json names, const Json& schema) -> Status {
      Json::Array all{Json::Object{{"type", "string"}}, std::move(names)};
      if (!merged.property_names.is_null()) {
        ASSIGN_OR_RETURN(Json property_names, AloneWithin(merged.property_names));
        all.push_back(std::move(property_names));
      }
      ASSIGN_OR_RETURN(Json alone, AloneWithin(schema));
      form.others.push_back({Json::Object{{"allOf", std::move(all)}}, std::move(alone)});
      return OkStatus();
    };
    for (const auto& [pattern, schema] : merged.pattern_properties)
      if (!IsFalse(schema)) RETURN_IF_ERROR(add(Json::Object{{"pattern", pattern}}, schema));
    const Json any = merged.additional.is_null() ? Json(true) : merged.additional;
    const bool open = !merged.closed && (!merged.additional.is_null() || merged.properties.empty());
    if (merged.pattern_properties.empty() && open && !IsFalse(any))
      return add(Json::Object{{"pattern", kAnyKey}}, any);
    return OkStatus();
  }

  // A part of the root as a self-contained schema, which may have a copy of the whole root.
  Result<Json> AloneWithin(const Json& own) {
    if (!HasReference(own)) return own;
    if (root_bytes_ == 0) root_bytes_ = kBytesOfJson * root_.Dump().size();
    budget_.Hold(root_bytes_);
    RETURN_IF_ERROR(budget_.Check(0));
    return Alone(own, root_);
  }

  Result<bool> Matches(const std::string& pattern, const std::string& name) {
    auto known = names_.find(pattern);
    if (known == names_.end()) {
      ASSIGN_OR_RETURN(grammar::Dfa names, grammar::ContentOfPattern(pattern, budget_));
      known = names_.emplace(pattern, std::move(names)).first;
    }
    return grammar::Accepts(known->second, name);
  }

  static constexpr std::size_t kBytesOfJson = 8;  // in memory, for each byte of text
  const Json& root_;
  grammar::Budget& budget_;
  std::size_t root_bytes_ = 0;
  std::map<std::string, grammar::Dfa> names_;  // by pattern
  std::vector<ArgumentForm> out_;
};

std::string TypeWithin(const Json& schema, const Json& root, grammar::Budget& budget) {
  if (budget.late()) return "";
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

grammar::Budget ArgumentBudget() { return {50'000, 1.0, 64 << 20}; }

Result<std::vector<ArgumentForm>> FormsOfArguments(const Json& parameters,
                                                   grammar::Budget& budget) {
  return Forms(parameters, budget).Run();
}

std::string TypeOfSchema(const Json& schema, grammar::Budget& budget) {
  return TypeWithin(schema, schema, budget);
}

Json SchemaOfArguments(const Tool& tool) {
  const bool given = tool.parameters.is_object();
  Json schema = given ? tool.parameters : Json(Json::Object{});
  if (schema.Find("type") == nullptr) schema.Set("type", "object");
  const Json* properties = schema.Find("properties");
  const bool none = !given || (properties != nullptr && properties->is_object() &&
                               properties->as_object().empty());
  const bool open = schema.Find("additionalProperties") != nullptr ||
                    schema.Find("patternProperties") != nullptr || schema.Find("$ref") != nullptr ||
                    schema.Find("allOf") != nullptr || schema.Find("anyOf") != nullptr ||
                    schema.Find("oneOf") != nullptr;
  if (none && !open) schema.Set("additionalProperties", false);
  return schema;
}

ArgumentTypes::ArgumentTypes(const Json& parameters, grammar::Budget& budget)
    : forms_(FormsOfArguments(parameters, budget)), is_plain_(IsPlain(parameters)) {
  const Json* properties = parameters.Find("properties");
  if (properties != nullptr && properties->is_object() && (is_plain_ || !forms_.ok())) {
    for (const auto& [name, schema] : properties->as_object())
      plain_.emplace(name, TypeWithin(schema, parameters, budget));
  }
  if (!forms_.ok()) return;
  for (const ArgumentForm& form : *forms_) {
    FormTypes& types = types_.emplace_back();
    for (const ArgumentForm::Key& key : form.keys)
      types.keys.emplace(key.name, TypeOfSchema(key.schema, budget));
    for (const ArgumentForm::Others& others : form.others)
      types.others.push_back(TypeOfSchema(others.schema, budget));
  }
}

std::string ArgumentTypes::TypeOf(const std::string& key) const {
  const auto plain = plain_.find(key);
  if (plain != plain_.end()) return plain->second;
  if (!forms_.ok()) return "";
  std::string type;
  for (const FormTypes& form : types_) {
    const auto known = form.keys.find(key);
    const std::vector<std::string> types =
        known != form.keys.end() ? std::vector<std::string>{known->second} : form.others;
    for (const std::string& one : types) {
      if (one.empty() || (!type.empty() && type != one)) return "";
      type = one;
    }
  }
  return type;
}

void FindTypes(std::vector<Tool>& tools) {
  grammar::Budget budget = ArgumentBudget();
  for (Tool& tool : tools) {
    if (tool.types == nullptr)
      tool.types = std::make_shared<const ArgumentTypes>(SchemaOfArguments(tool), budget);
  }
}

std::string TypeOfParameter(const Tool& tool, const std::string& key) {
  if (tool.types != nullptr) return tool.types->TypeOf(key);
  grammar::Budget budget = ArgumentBudget();
  return ArgumentTypes(SchemaOfArguments(tool), budget).TypeOf(key);
}

}  // namespace thermocline::chat
