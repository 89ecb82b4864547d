#include "server/chat/tagged_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "server/chat/argument_forms.h"

namespace thermocline::chat {
namespace {

// Writes one form. The rule "rest-NAME-N-x-C" derives the text after a value of kind x and C keys,
// from key N on; if N is the number of keys, keys without a name follow.
class FormWriter {
 public:
  FormWriter(const TaggedArguments& tagged, const Tool& tool, const ArgumentTypes& types,
             const ArgumentForm& form, std::string name, RuleList& rules)
      : tagged_(tagged), tool_(tool), form_(form), name_(std::move(name)), rules_(rules) {
    for (const auto& key : form.keys) text_.push_back(types.TypeOf(key.name) == "string");
    grammar::Budget budget = ArgumentBudget();
    for (const auto& others : form.others)
      other_text_.push_back(TypeOfSchema(others.schema, budget) == "string");
  }

  std::string Run() {
    WriteOthers();
    std::string body = Ways(0, 0, rules_.Literal(tagged_.open) + " ");
    if (MayEnd(0, 0)) body += StrCat(body.empty() ? "" : " | ", rules_.Literal(tagged_.empty));
    const std::size_t count = form_.keys.size();
    if (count == 0 && form_.others.empty()) return body;
    for (std::size_t from = count == 0 ? 0 : 1; from <= count && !rules_.full(); ++from)
      for (std::int64_t came = 1; came <= CountMax(); ++came)
        for (const bool text : {true, false}) WriteRest(from, came, text);
    return body;
  }

 private:
  std::int64_t CountMax() const { return std::max<std::int64_t>({1, form_.min, form_.max}); }
  std::int64_t More(std::int64_t came) const { return std::min(came + 1, CountMax()); }
  bool RequiredFrom(std::size_t from) const {
    return std::any_of(form_.keys.begin() + from, form_.keys.end(),
                       [](const auto& key) { return key.required; });
  }
  bool MayEnd(std::size_t from, std::int64_t came) const {
    return !RequiredFrom(from) && came >= form_.min;
  }
  bool MayGoOn(std::int64_t came) const { return form_.max < 0 || came < form_.max; }
  std::string Rest(std::size_t from, std::int64_t came, bool text) const {
    return StrCat("rest-", name_, "-", from, text ? "-t-" : "-o-", came);
  }

  // Writes the rule for the text after a value, from key `from` on.
  void WriteRest(std::size_t from, std::int64_t came, bool text) {
    const ValueMarks& marks = text ? tagged_.text : tagged_.other;
    std::string body = Ways(from, came, rules_.Literal(marks.next) + " ");
    if (MayEnd(from, came)) body += StrCat(body.empty() ? "" : " | ", rules_.Literal(marks.close));
    // A dead end is a rule that derives no text.
    rules_.Add(Rest(from, came, text), body.empty() ? Rest(from, came, text) : body);
  }

  // KEY open VALUE rest, for each key that may come next.
  std::string Ways(std::size_t from, std::int64_t came, const std::string& lead) {
    std::string out;
    if (!MayGoOn(came)) return out;
    const auto add = [&](const std::string& key, const std::string& value,
                         const std::string& rest) {
      out += StrCat(out.empty() ? "" : " | ", lead, key, " ", value, " ", rest);
    };
    for (std::size_t i = from; i < form_.keys.size(); ++i) {
      const auto& key = form_.keys[i];
      add(rules_.Literal(key.name), Value(StrCat("value-", name_, "-", i), key.schema, text_[i]),
          Rest(i + 1, More(came), text_[i]));
      if (key.required) return out;
    }
    for (std::size_t i = 0; i < form_.others.size(); ++i)
      add(StrCat("key-", name_, "-", i), StrCat("other-", name_, "-", i),
          Rest(form_.keys.size(), More(came), other_text_[i]));
    return out;
  }

  void WriteOthers() {
    std::vector<std::string> names;
    for (const auto& key : form_.keys) names.push_back(key.name);
    for (std::size_t i = 0; i < form_.others.size(); ++i) {
      const auto& others = form_.others[i];
      // A key ends at the mark before its value.
      std::vector<std::string> stops;
      for (const std::string& open : {tagged_.text.open, tagged_.other.open})
        if (!open.empty() && !rules_.IsControl(open)) stops.push_back(open.substr(0, 1));
      rules_.AddString(StrCat("key-", name_, "-", i), others.names, std::move(stops), names, false,
                       false);
      rules_.Add(StrCat("other-", name_, "-", i),
                 Value(StrCat("free-", name_, "-", i), others.schema, other_text_[i]));
    }
  }

  // A value with the mark before it. Its rule is written once.
  std::string Value(const std::string& rule, const Json& schema, bool text) {
    const bool known = std::find(values_.begin(), values_.end(), rule) != values_.end();
    if (!known) values_.push_back(rule);
    if (!text) {
      if (!known) rules_.AddSchema(rule, schema, !tool_.strict);
      return StrCat(rules_.Literal(tagged_.other.open), " ", rule);
    }
    std::vector<std::string> stops;
    if (tagged_.quote == '\0') stops = {tagged_.TextEnd()};
    if (!known) rules_.AddString(rule, schema, std::move(stops), {}, true, !tool_.strict);
    return StrCat(rules_.Literal(tagged_.text.open), " ", rule);
  }

  const TaggedArguments& tagged_;
  const Tool& tool_;
  const ArgumentForm& form_;
  const std::string name_;
  RuleList& rules_;
  std::vector<std::string> values_;
  // For each of form_.keys and of form_.others: true if its schema makes its values strings. The
  // call parser decides by TypeOfParameter, too, if strings and other values have the same marks.
  std::vector<bool> text_, other_text_;
};

// An estimate of the number of key transitions that need rules, and its limit.
constexpr std::size_t kWaysMax = 200'000;
std::size_t WaysOf(const std::vector<ArgumentForm>& forms) {
  std::size_t ways = 0;
  for (const ArgumentForm& form : forms)
    ways += form.keys.size() * form.keys.size() * std::max<std::int64_t>({1, form.min, form.max});
  return ways;
}

// The keys of `properties`, used if the rest of the schema is not supported.
ArgumentForm PropertiesOf(const Json& parameters) {
  ArgumentForm form;
  const Json* properties = parameters.Find("properties");
  if (properties == nullptr || !properties->is_object()) return form;
  const Json* required = parameters.Find("required");
  for (const auto& [name, schema] : properties->as_object()) {
    const auto is_name = [&name = name](const Json& each) {
      return each.is_string() && each.as_string() == name;
    };
    const bool must =
        required != nullptr && required->is_array() &&
        std::any_of(required->as_array().begin(), required->as_array().end(), is_name);
    form.keys.push_back({name, schema, must});
  }
  return form;
}

}  // namespace

Result<std::string> WriteTagged(const TaggedArguments& tagged, const Tool& tool, int index,
                                RuleList& rules) {
  grammar::Budget budget = ArgumentBudget();
  const auto types = tool.types != nullptr
                         ? tool.types
                         : std::make_shared<const ArgumentTypes>(SchemaOfArguments(tool), budget);
  auto forms = types->forms();
  if (forms.ok() && WaysOf(*forms) > kWaysMax)
    forms = base::Unimplemented("parameters of so many keys and alternatives are not supported");
  if (!forms.ok() && tool.strict) return forms.status();
  if (!forms.ok()) forms = std::vector<ArgumentForm>{PropertiesOf(SchemaOfArguments(tool))};
  std::string out;
  for (std::size_t i = 0; i < forms->size(); ++i) {
    FormWriter writer(tagged, tool, *types, (*forms)[i], StrCat(index, "-", i), rules);
    out += StrCat(out.empty() ? "" : " | ", writer.Run());
    if (rules.full() || out.size() > RuleList::kBytesMax)
      return base::InvalidArgument("the grammar of the tools' arguments has more than ",
                                   RuleList::kBytesMax,
                                   " bytes: give fewer tools, or fewer parameters a tool");
  }
  return out;
}

}  // namespace thermocline::chat
