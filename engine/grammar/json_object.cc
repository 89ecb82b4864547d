#include "engine/grammar/json_object.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"
#include "engine/grammar/json_strings.h"

namespace thermocline::grammar {
namespace {

constexpr std::int64_t kCountedMax = 200;  // of minProperties and maxProperties

bool IsFalse(const Json& schema) { return schema.is_bool() && !schema.as_bool(); }

class ObjectBuilder {
 public:
  ObjectBuilder(const MergedSchema& schema, Nfa& nfa, ValueRules& rules)
      : s_(schema), nfa_(nfa), rules_(rules) {}

  Status Run(int from, int to) {
    RETURN_IF_ERROR(FindPatterns());
    RETURN_IF_ERROR(FindNamed());
    RETURN_IF_ERROR(FindOthers());
    RETURN_IF_ERROR(CheckCounts());
    // States are distinguished by the number of properties so far, if it matters.
    counted_ = s_.max_properties >= 0 || s_.min_properties > NamedRequired();
    const int open = nfa_.AddState(), begin = nfa_.AddState(), close = nfa_.AddState();
    nfa_.AddByte(from, '{', '{', open);
    nfa_.Call(open, rules_.Space(), begin);
    nfa_.AddByte(close, '}', '}', to);
    // By the number of properties so far: at[0] none, at[1] one or, if they are not counted, some.
    std::vector<int> at{begin};
    for (const Named& each : named_) RETURN_IF_ERROR(AddNamed(each, at));
    RETURN_IF_ERROR(AddOthers(at));
    for (int came = 0; came < base::IntSize(at); ++came) {
      const bool too_few = counted_ && came < s_.min_properties;
      if (at[came] < 0 || too_few) continue;
      if (came == 0) {
        nfa_.Link(at[0], close);
      } else {
        nfa_.Call(at[came], rules_.Space(), close);
      }
    }
    return OkStatus();
  }

 private:
  struct Named {
    std::string name;
    int rule;
    bool required;
  };
  struct Other {
    Dfa keys;
    bool any_key;
    int rule;
  };
  struct Pattern {
    Dfa keys;
    const Json* schema;
  };

  bool IsRequired(const std::string& name) const {
    return std::find(s_.required.begin(), s_.required.end(), name) != s_.required.end();
  }
  std::int64_t NamedRequired() const {
    return std::count_if(named_.begin(), named_.end(), [](const Named& n) { return n.required; });
  }
  bool Open() const {
    if (s_.closed) return false;
    if (!s_.additional.is_null()) return !IsFalse(s_.additional);
    return s_.properties.empty() && s_.pattern_properties.empty();
  }

  Status FindPatterns() {
    for (const auto& [pattern, schema] : s_.pattern_properties) {
      ASSIGN_OR_RETURN(Dfa keys, ContentOfPattern(pattern, rules_.budget()));
      for (const Pattern& other : patterns_) {
        ASSIGN_OR_RETURN(const Dfa both, Intersection(other.keys, keys, rules_.budget()));
        if (!IsEmpty(both))
          return base::Unimplemented(
              "the schema's patternProperties overlap, which is not supported: '", pattern,
              "' and another match the same keys");
      }
      patterns_.push_back({std::move(keys), &schema});
    }
    return OkStatus();
  }

  // Returns the schema of a property of that name, from all keywords that apply to it.
  Json SchemaOf(const std::string& name, const Json* own) const {
    Json::Array all;
    if (own != nullptr) all.push_back(*own);
    for (const Pattern& pattern : patterns_)
      if (Accepts(pattern.keys, name)) all.push_back(*pattern.schema);
    if (all.empty()) all.push_back(s_.additional.is_null() ? Json(true) : s_.additional);
    return all.size() == 1 ? all[0] : Json(Json::Object{{"allOf", std::move(all)}});
  }

  Status AddName(const std::string& name, const Json& schema) {
    if (IsFalse(schema) && !IsRequired(name)) return OkStatus();
    if (!s_.property_names.is_null()) {
      ASSIGN_OR_RETURN(const bool fits, NameFits(name));
      if (!fits && !IsRequired(name)) return OkStatus();
      if (!fits)
        return base::InvalidArgument("the schema's propertyNames forbids the required '", name,
                                     "'");
    }
    ASSIGN_OR_RETURN(const int rule, rules_.RuleOf(schema));
    named_.push_back({name, rule, IsRequired(name)});
    return OkStatus();
  }

  Status FindNamed() {
    for (const auto& [name, schema] : s_.properties)
      RETURN_IF_ERROR(AddName(name, SchemaOf(name, &schema)));
    for (const std::string& name : s_.required) {
      const bool there = std::any_of(s_.properties.begin(), s_.properties.end(),
                                     [&](const auto& member) { return member.first == name; });
      if (there) continue;
      const Json schema = SchemaOf(name, nullptr);
      const bool matches =
          std::any_of(patterns_.begin(), patterns_.end(),
                      [&](const Pattern& each) { return Accepts(each.keys, name); });
      const bool closed = s_.closed || IsFalse(s_.additional);
      if (closed && !matches)
        return base::InvalidArgument("the schema requires '", name,
                                     "', which it does not allow: additionalProperties is false");
      RETURN_IF_ERROR(AddName(name, schema));
    }
    return OkStatus();
  }

  Result<StringBounds> NameBounds() {
    ASSIGN_OR_RETURN(const MergedSchema names,
                     MergeSchema(s_.property_names, s_.property_names, rules_.budget()));
    if (names.never || names.has_enum || !names.choices.empty())
      return base::Unimplemented(
          "the schema's 'propertyNames' other than a pattern, a format and lengths is not "
          "supported");
    return StringBounds{.patterns = names.patterns,
                        .formats = names.formats,
                        .min_length = names.min_length,
                        .max_length = names.max_length};
  }
  Result<bool> NameFits(const std::string& name) {
    ASSIGN_OR_RETURN(const StringBounds bounds, NameBounds());
    ASSIGN_OR_RETURN(const Dfa content, ContentOf(bounds, rules_.budget()));
    return Accepts(content, name);
  }

  // Keys of no named property: by pattern, and those that match no pattern.
  Status FindOthers() {
    std::vector<std::string> taken;
    for (const auto& [name, schema] : s_.properties) taken.push_back(name);
    taken.insert(taken.end(), s_.required.begin(), s_.required.end());
    if (patterns_.empty() && !Open()) return OkStatus();
    const bool free = patterns_.empty() && taken.empty() && s_.property_names.is_null();
    const Json any = s_.additional.is_null() ? Json(true) : s_.additional;
    if (free) {
      ASSIGN_OR_RETURN(const int rule, rules_.RuleOf(any));
      others_.push_back({{}, true, rule});
      return OkStatus();
    }
    ASSIGN_OR_RETURN(Dfa left, ContentWithout(taken, rules_.budget()));
    if (!s_.property_names.is_null()) {
      ASSIGN_OR_RETURN(const StringBounds bounds, NameBounds());
      ASSIGN_OR_RETURN(const Dfa names, ContentOf(bounds, rules_.budget()));
      ASSIGN_OR_RETURN(left, Intersection(names, left, rules_.budget()));
    }
    for (const Pattern& pattern : patterns_) {
      ASSIGN_OR_RETURN(Dfa keys, Intersection(pattern.keys, left, rules_.budget()));
      ASSIGN_OR_RETURN(left, Difference(left, pattern.keys, rules_.budget()));
      if (IsFalse(*pattern.schema) || IsEmpty(keys)) continue;
      ASSIGN_OR_RETURN(const int rule, rules_.RuleOf(*pattern.schema));
      others_.push_back({std::move(keys), false, rule});
    }
    if (!Open() || IsEmpty(left)) return OkStatus();
    ASSIGN_OR_RETURN(const int rule, rules_.RuleOf(any));
    others_.push_back({std::move(left), false, rule});
    return OkStatus();
  }

  Status CheckCounts() const {
    if (s_.min_properties > kCountedMax || s_.max_properties > kCountedMax)
      return base::Unimplemented("minProperties and maxProperties above ", kCountedMax,
                                 " are not supported");
    // A duplicate key counts as one property.
    if (s_.min_properties > std::max<std::int64_t>(1, NamedRequired()) && !others_.empty())
      return base::Unimplemented(
          "the schema's 'minProperties' ", s_.min_properties,
          " of keys that are not named is not supported; name them in properties, or require them");
    return OkStatus();
  }

  // `at` grows with the number of properties.
  int Behind(std::vector<int>& next, std::size_t came) {
    const std::size_t slot = counted_ ? came : std::min<std::size_t>(came, 1);
    if (s_.max_properties >= 0 && static_cast<std::int64_t>(came) > s_.max_properties) return -1;
    if (next.size() <= slot) next.resize(slot + 1, -1);
    if (next[slot] < 0) next[slot] = nfa_.AddState();
    return next[slot];
  }

  int BeforeKey(int at, bool first) {
    if (first) return at;
    const int comma = nfa_.AddState(), key = nfa_.AddState();
    nfa_.AddByte(at, ',', ',', comma);
    nfa_.Call(comma, rules_.Space(), key);
    return key;
  }

  void AddValue(int colon, int rule, int to) {
    const int behind = nfa_.AddState(), value = nfa_.AddState();
    nfa_.AddByte(colon, ':', ':', behind);
    nfa_.Call(behind, rules_.Space(), value);
    nfa_.Call(value, rule, to);
  }

  Status AddNamed(const Named& each, std::vector<int>& at) {
    std::vector<int> next;
    const std::string key = Json(each.name).Dump();
    for (std::size_t came = 0; came < at.size(); ++came) {
      if (at[came] < 0) continue;
      RETURN_IF_ERROR(rules_.budget().Check(nfa_.num_states()));
      const int to = Behind(next, came + 1);
      if (to >= 0) {
        const int begin = nfa_.AddState();
        nfa_.Link(BeforeKey(at[came], came == 0), begin);
        AddValue(nfa_.Literal(begin, key), each.rule, to);
      }
      if (each.required) continue;
      const int skipped = Behind(next, came);
      if (skipped >= 0) nfa_.Link(at[came], skipped);
    }
    at = std::move(next);
    return OkStatus();
  }

  void AddOther(const Other& other, int from, int to) {
    const int colon = nfa_.AddState();
    if (other.any_key) {
      nfa_.Call(from, rules_.AnyString(), colon);
    } else {
      AddQuoted(other.keys, from, nfa_, colon);
    }
    AddValue(colon, other.rule, to);
  }

  Status AddOthers(std::vector<int>& at) {
    if (others_.empty()) return OkStatus();
    const std::size_t limit = std::max(s_.max_properties, s_.min_properties);
    for (std::size_t came = 0; came < at.size() || (counted_ && came < limit); ++came) {
      RETURN_IF_ERROR(rules_.budget().Check(nfa_.num_states()));
      if (came >= at.size() || at[came] < 0) continue;
      // Uncounted properties loop; counted ones stop at the maximum.
      const bool round =
          (!counted_ && came > 0) || (s_.max_properties < 0 && came >= limit && came > 0);
      const int to = round ? at[came] : Behind(at, came + 1);
      if (to < 0) continue;
      const int key = BeforeKey(at[came], came == 0);
      for (const Other& other : others_) AddOther(other, key, to);
    }
    return OkStatus();
  }

  const MergedSchema& s_;
  Nfa& nfa_;
  ValueRules& rules_;
  std::vector<Named> named_;
  std::vector<Pattern> patterns_;
  std::vector<Other> others_;
  bool counted_ = false;
};

}  // namespace

Status AddObject(const MergedSchema& schema, int from, Nfa& nfa, int to, ValueRules& rules) {
  return ObjectBuilder(schema, nfa, rules).Run(from, to);
}

}  // namespace thermocline::grammar
