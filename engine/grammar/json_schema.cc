#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/index.h"
#include "engine/grammar/free_text.h"
#include "engine/grammar/json_numbers.h"
#include "engine/grammar/json_object.h"
#include "engine/grammar/json_strings.h"
#include "engine/grammar/schema_disjoint.h"
#include "engine/grammar/schema_merge.h"

namespace thermocline::grammar {
namespace {

constexpr std::int64_t kItemsMax = 10'000;  // of minItems and maxItems
constexpr int kCountedCharsMax = 256;
// Bytes of JSON in memory per byte of its text; a list of single digits takes most.
constexpr std::size_t kJsonBytesOfByte = sizeof(Json) / 2;

StringBounds StringBoundsOf(const MergedSchema& s) {
  return {.patterns = s.patterns,
          .formats = s.formats,
          .min_length = s.min_length,
          .max_length = s.max_length};
}

class SchemaGrammar final : public ValueRules {
 public:
  SchemaGrammar(const Json& root, Budget& budget) : root_(root), budget_(budget) {}

  Result<Grammar> Run() {
    ASSIGN_OR_RETURN(out_.root, RuleOf(root_));
    // A schema may be arbitrarily deep, so the rules it needs are built iteratively.
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      Nfa body;
      const Wanted wanted = std::move(wanted_[i]);
      RETURN_IF_ERROR(Build(wanted.schema, body));
      RETURN_IF_ERROR(Spend(body));
      out_.rules[wanted.rule].body = std::move(body);
    }
    return std::move(out_);
  }

  Result<int> RuleOf(const Json& schema) override {
    ASSIGN_OR_RETURN(MergedSchema merged, MergeSchema(schema, root_, budget_));
    std::string key = ToJson(merged).Dump();
    const std::size_t bytes = sizeof(Wanted) + (1 + kJsonBytesOfByte) * key.size();
    RETURN_IF_ERROR(budget_.Check(spent_, bytes));
    const auto [found, added] = rules_.emplace(std::move(key), base::IntSize(out_.rules));
    if (!added) return found->second;
    budget_.Hold(bytes);
    const int rule = out_.AddRule("value");
    wanted_.push_back({rule, std::move(merged)});
    return rule;
  }

  // `ws`: see the header.
  int Space() override {
    if (space_ >= 0) return space_;
    Nfa nfa;
    nfa.Link(Nfa::kStart, Nfa::kFinal);
    nfa.AddByte(Nfa::kStart, ' ', ' ', Nfa::kFinal);
    int at = nfa.AddState();
    const int second = nfa.AddState();
    nfa.AddByte(Nfa::kStart, '\n', '\n', second);
    nfa.AddByte(second, '\n', '\n', at);
    nfa.Link(second, at);
    for (int i = 0; i < 20; ++i) {
      const int next = nfa.AddState();
      nfa.Link(at, Nfa::kFinal);
      nfa.AddByte(at, ' ', ' ', next);
      nfa.AddByte(at, '\t', '\t', next);
      at = next;
    }
    nfa.Link(at, Nfa::kFinal);
    return space_ = AddRule("ws", std::move(nfa));
  }

  int AnyString() override {
    if (string_ >= 0) return string_;
    Nfa nfa;
    AddAnyString(Nfa::kStart, nfa, Nfa::kFinal);
    return string_ = AddRule("string", std::move(nfa));
  }

  Budget& budget() override { return budget_; }

 private:
  struct Wanted {
    int rule;
    MergedSchema schema;
  };

  int AddRule(const char* name, Nfa body) {
    const int rule = out_.AddRule(name);
    out_.rules[rule].body = std::move(body);
    return rule;
  }

  Status Spend(const Nfa& body) {
    spent_ += body.num_states();
    budget_.Hold(body.bytes_held());
    return budget_.Check(spent_);
  }

  Status Build(const MergedSchema& s, Nfa& nfa) {
    if (s.never) return OkStatus();  // no path leads to the end
    if (!s.choices.empty()) return BuildChoice(s, nfa);
    if (s.has_enum) return BuildEnum(s, nfa);
    for (const std::string& type : TypesOf(s)) RETURN_IF_ERROR(BuildType(s, type, nfa));
    return OkStatus();
  }

  // Every alternative of the first choice, merged with all other keywords.
  Status BuildChoice(const MergedSchema& s, Nfa& nfa) {
    MergedSchema rest = s;
    const MergedSchema::Choice choice = rest.choices.front();
    rest.choices.erase(rest.choices.begin());
    const Json all = ToJson(rest);
    std::vector<MergedSchema> merged;
    for (const Json& each : choice.alternatives) {
      const Json with = Json::Object{{"allOf", Json::Array{all, each}}};
      ASSIGN_OR_RETURN(MergedSchema one, MergeSchema(with, root_, budget_));
      ASSIGN_OR_RETURN(const int rule, RuleOf(with));
      nfa.Call(Nfa::kStart, rule, Nfa::kFinal);
      if (choice.one_of) merged.push_back(std::move(one));
    }
    return CheckDisjoint(merged);
  }

  Status CheckDisjoint(const std::vector<MergedSchema>& alternatives) const {
    constexpr std::size_t kPairsUntimed = 8;
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (k % kPairsUntimed == 0) RETURN_IF_ERROR(budget_.CheckTime());
        if (AreDisjoint(alternatives[k], alternatives[i])) continue;
        return base::Unimplemented(
            "the schema's 'oneOf': a value might satisfy both alternatives ", k, " and ", i,
            ", which cannot be kept apart; use anyOf, or tell them apart by type, by a required "
            "property's const or enum, or by closed properties");
      }
    }
    return OkStatus();
  }

  Status BuildEnum(const MergedSchema& s, Nfa& nfa) {
    bool any = false;
    for (const Json& value : s.enumeration) {
      ASSIGN_OR_RETURN(const bool fits, Satisfies(value, s, budget_));
      if (!fits) continue;
      any = true;
      const int begin = nfa.AddState();
      nfa.Link(Nfa::kStart, begin);
      nfa.Link(nfa.Literal(begin, value.Dump()), Nfa::kFinal);
    }
    if (any) return OkStatus();
    return base::InvalidArgument("no value of the schema's 'enum' satisfies what else it says: ",
                                 base::Shorten(Json(s.enumeration).Dump(), 200));
  }

  Status BuildType(const MergedSchema& s, const std::string& type, Nfa& nfa) {
    const int from = Nfa::kStart, to = Nfa::kFinal;
    if (type == "object") return AddObject(s, from, nfa, to, *this);
    if (type == "array") return BuildArray(s, nfa);
    if (type == "string") return BuildString(s, nfa);
    if (type == "integer") return AddInteger(BoundsOf(s), from, nfa, to, budget_);
    if (type == "number") return AddNumber(BoundsOf(s), from, nfa, to, budget_);
    const auto word = [&](std::string_view text) {
      const int begin = nfa.AddState();
      nfa.Link(from, begin);
      nfa.Link(nfa.Literal(begin, text), to);
    };
    if (type == "null") word("null");
    if (type == "boolean") word("true"), word("false");
    return OkStatus();
  }

  Status BuildString(const MergedSchema& s, Nfa& nfa) {
    const StringBounds bounds = StringBoundsOf(s);
    if (bounds.any()) {
      nfa.Call(Nfa::kStart, AnyString(), Nfa::kFinal);
      return OkStatus();
    }
    if (s.max_length >= 0 && s.min_length > s.max_length)
      return base::InvalidArgument("the schema's minLength ", s.min_length, " is above maxLength ",
                                   s.max_length);
    if (bounds.patterns.empty() && bounds.formats.empty()) {
      if (s.min_length <= kCountedCharsMax && s.max_length <= kCountedCharsMax) {
        AddCountedString(static_cast<int>(s.min_length), static_cast<int>(s.max_length),
                         Nfa::kStart, nfa, Nfa::kFinal);
        return OkStatus();
      }
      return BuildLongString(s.min_length, s.max_length, nfa);
    }
    ASSIGN_OR_RETURN(const Dfa content, ContentOf(bounds, budget_));
    AddQuoted(content, Nfa::kStart, nfa, Nfa::kFinal);
    return OkStatus();
  }

  Status BuildLongString(std::int64_t min, std::int64_t max, Nfa& nfa) {
    RETURN_IF_ERROR(budget_.Check(std::max(min, max) / kBlockChars));
    if (block_ < 0) {
      Nfa block, rest;
      MakeBlock(block);
      MakeRest(rest);
      block_ = AddRule("block", std::move(block));
      rest_ = AddRule("rest", std::move(rest));
    }
    AddLongString(min, max, {.block = block_, .rest = rest_}, Nfa::kStart, nfa, Nfa::kFinal);
    return OkStatus();
  }

  static NumberBounds BoundsOf(const MergedSchema& s) {
    NumberBounds out{.multiple_of = s.multiple_of};
    if (!s.minimum.is_null()) out.min = {DecimalOf(s.minimum), false};
    if (!s.maximum.is_null()) out.max = {DecimalOf(s.maximum), false};
    if (!s.exclusive_minimum.is_null()) {
      Decimal value = DecimalOf(s.exclusive_minimum);
      if (!out.min.has_value() || Compare(value, out.min->value) >= 0)
        out.min = {std::move(value), true};
    }
    if (!s.exclusive_maximum.is_null()) {
      Decimal value = DecimalOf(s.exclusive_maximum);
      if (!out.max.has_value() || Compare(value, out.max->value) <= 0)
        out.max = {std::move(value), true};
    }
    return out;
  }

  Status BuildArray(const MergedSchema& s, Nfa& nfa) {
    const bool none_behind = s.items.is_bool() && !s.items.as_bool();
    const std::int64_t prefix = s.prefix_items.size();
    std::int64_t max = s.max_items;
    if (none_behind) max = max < 0 ? prefix : std::min(max, prefix);
    if (s.min_items > kItemsMax || max > kItemsMax)
      return base::Unimplemented("minItems and maxItems above ", kItemsMax, " are not supported");
    if (max >= 0 && s.min_items > max)
      return base::InvalidArgument("the schema's arrays need ", s.min_items, " items and may have ",
                                   max);
    const int open = nfa.AddState(), close = nfa.AddState();
    nfa.AddByte(Nfa::kStart, '[', '[', open);
    const int first = nfa.AddState();
    nfa.Call(open, Space(), first);
    nfa.AddByte(close, ']', ']', Nfa::kFinal);
    if (s.min_items == 0) nfa.Link(first, close);
    const std::int64_t counted = std::max({s.min_items, max, prefix});
    int at = first;
    for (std::int64_t i = 0; i < counted && (max < 0 || i < max); ++i) {
      const Json schema = i < prefix ? s.prefix_items[i] : s.items.is_null() ? Json(true) : s.items;
      at = AddComma(i > 0, at, nfa);
      ASSIGN_OR_RETURN(const int rule, RuleOf(schema));
      const int behind = nfa.AddState();
      nfa.Call(at, rule, behind);
      if (i + 1 >= s.min_items) nfa.Call(behind, Space(), close);
      at = behind;
    }
    if (max >= 0) return OkStatus();
    ASSIGN_OR_RETURN(const int rule, RuleOf(s.items.is_null() ? Json(true) : s.items));
    const int behind = nfa.AddState();
    nfa.Call(AddComma(counted > 0, at, nfa), rule, behind);
    nfa.Call(AddComma(true, behind, nfa), rule, behind);
    nfa.Call(behind, Space(), close);
    return OkStatus();
  }

  int AddComma(bool wanted, int from, Nfa& nfa) {
    if (!wanted) return from;
    const int comma = nfa.AddState(), behind = nfa.AddState();
    nfa.AddByte(from, ',', ',', comma);
    nfa.Call(comma, Space(), behind);
    return behind;
  }

  const Json& root_;
  Budget& budget_;
  Grammar out_;
  std::map<std::string, int> rules_;
  std::vector<Wanted> wanted_;
  std::size_t spent_ = 0;
  int space_ = -1, string_ = -1, block_ = -1, rest_ = -1;
};

// The strings of an enumeration that satisfy the rest of the schema.
Result<Dfa> EnumeratedStrings(const MergedSchema& s, Budget& budget) {
  Nfa nfa;
  for (const Json& value : s.enumeration) {
    ASSIGN_OR_RETURN(const bool fits, Satisfies(value, s, budget));
    if (!fits || !value.is_string()) continue;
    const int begin = nfa.AddState();
    nfa.Link(Nfa::kStart, begin);
    nfa.Link(nfa.Literal(begin, value.as_string()), Nfa::kFinal);
  }
  return MakeDeterministic(nfa, budget, true);
}

}  // namespace

Result<Grammar> GrammarOfBareStrings(const Json& schema, const BareForm& form, Budget& budget) {
  ASSIGN_OR_RETURN(const MergedSchema merged, MergeSchema(schema, schema, budget));
  if (!merged.choices.empty())
    return base::Unimplemented("a string that is a choice between schemas is not supported here");
  ASSIGN_OR_RETURN(const Dfa content, merged.has_enum ? EnumeratedStrings(merged, budget)
                                                      : ContentOf(StringBoundsOf(merged), budget));
  ASSIGN_OR_RETURN(const Dfa stopped, TextWithout(form.stops, false, budget));
  ASSIGN_OR_RETURN(Dfa allowed, Intersection(content, stopped, budget));
  if (!form.except.empty()) {
    ASSIGN_OR_RETURN(const Dfa others, ContentWithout(form.except, budget));
    ASSIGN_OR_RETURN(allowed, Intersection(allowed, others, budget));
  }
  if (IsEmpty(allowed))
    return base::InvalidArgument(
        "no string that the schema allows can be written in the model's "
        "form of calls");
  Grammar out;
  Nfa body;
  if (form.quote == '\0') {
    Insert(allowed, Nfa::kStart, body, Nfa::kFinal);
  } else {
    AddEscaped(allowed, form.quote, Nfa::kStart, body, Nfa::kFinal);
  }
  budget.Hold(body.bytes_held());
  out.AddRule("text");
  out.rules[0].body = std::move(body);
  return out;
}

Result<Grammar> GrammarOfSchema(const Json& schema, Budget& budget) {
  return SchemaGrammar(schema, budget).Run();
}

}  // namespace thermocline::grammar
