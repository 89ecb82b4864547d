// Filters and tests. Source: Jinja's built-ins; tojson as overridden by Hugging Face.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_text.h"

namespace thermocline::text::jinja {
namespace {

using Filter = Result<Value> (*)(Interpreter&, const Value&, const Arguments&);
using Test = Result<bool> (*)(Interpreter&, const Value&, const Arguments&);

std::int64_t IntOr(const Value& value, std::int64_t absent) {
  return value.is_int() ? value.as_int() : absent;
}

// "a.b" inside nested dicts, or an index.
Result<Value> Attribute(const Value& object, const Value& path) {
  if (!path.is_string()) return GetItem(object, path);
  Value at = object;
  for (const TemplateText& name : SplitAt(path.text(), ".", -1, false)) {
    ASSIGN_OR_RETURN(at, GetAttribute(at, name.bytes()));
  }
  return at;
}

// Indentation can make nested lists many times longer, so bytes are limited.
Result<Value> ToJson(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  JsonStyle style{.bytes_max = std::min(kTextBytesMax, interpreter.limits().output_bytes)};
  const Value indent = arguments.Get(0, "indent"),
              separators = arguments.Get(SIZE_MAX, "separators");
  style.ensure_ascii = arguments.Get(SIZE_MAX, "ensure_ascii").Truthy();
  style.sort_keys = arguments.Get(SIZE_MAX, "sort_keys").Truthy();
  if (indent.is_int() && !indent.is_bool()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(indent.as_int(), 0, 16));
    style.item_separator = ",";
  }
  if (separators.is_list() && separators.list().size() == 2) {
    style.item_separator = separators.list()[0].ToString();
    style.key_separator = separators.list()[1].ToString();
  }
  std::string out;
  RETURN_IF_ERROR(AppendJson(value, style, 0, out));
  return Value(std::move(out));
}

Result<Value> Join(Interpreter&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  const TemplateText separator = arguments.Get(0, "d").ToText();
  const Value attribute = arguments.Get(1, "attribute");
  TemplateText out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!attribute.is_undefined()) {
      ASSIGN_OR_RETURN(item, Attribute(item, attribute));
    }
    if (i > 0) out.Append(separator);
    out.Append(item.ToText());
    if (out.size() > kTextBytesMax)
      return base::ResourceExhausted("join makes more than ", kTextBytesMax, " bytes");
  }
  return Value(std::move(out));
}

Result<Value> Length(Interpreter&, const Value& value, const Arguments&) {
  if (value.is_dict()) return Value(value.dict().size());
  if (value.is_string()) return Value(CountCharacters(value.as_string()));
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  return Value(items.size());
}

Result<Value> Default(Interpreter&, const Value& value, const Arguments& arguments) {
  const bool absent =
      value.is_undefined() || (arguments.Get(1, "boolean").Truthy() && !value.Truthy());
  if (!absent) return value;
  const Value fallback = arguments.Get(0, "default_value");
  return fallback.is_undefined() ? Value("") : fallback;
}

Result<Value> Items(Interpreter& interpreter, const Value& value, const Arguments&) {
  if (value.is_undefined()) return Value::MakeList({});
  if (!value.is_dict())
    return base::InvalidArgument("items needs a dict, not a ", value.type_name());
  return CallMethod(interpreter, value, "items", {});
}

Result<Value> DictSort(Interpreter&, const Value& value, const Arguments& arguments) {
  if (!value.is_dict())
    return base::InvalidArgument("dictsort needs a dict, not a ", value.type_name());
  const bool case_sensitive = arguments.Get(0, "case_sensitive").Truthy();
  const bool by_value = arguments.Get(1, "by").ToString() == "value",
             reverse = arguments.Get(2, "reverse").Truthy();
  Value::Dict entries = value.dict();
  const auto key = [&](const auto& entry) {
    const TemplateText text = (by_value ? entry.second : entry.first).ToText();
    return case_sensitive ? text.bytes() : Lower(text).bytes();
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
    if (!WalkMeter::Walk(16)) return false;
    return reverse ? key(b) < key(a) : key(a) < key(b);
  });
  Value::List out;
  for (const auto& [name, item] : entries) out.push_back(Value::MakeList({name, item}, true));
  return Value::MakeList(std::move(out));
}

Result<Value> Indent(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value width = arguments.Get(0, "width");
  const std::int64_t spaces = std::clamp<std::int64_t>(IntOr(width, 4), 0, 64);
  const TemplateText prefix =
      width.is_string() ? width.text()
                        : TemplateText::Data(std::string(static_cast<std::size_t>(spaces), ' '));
  const bool first = arguments.Get(1, "first").Truthy(), blank = arguments.Get(2, "blank").Truthy();
  const TemplateText text = value.ToText();
  TemplateText out;
  std::size_t number = 0, begin = 0;
  for (const TemplateText& line : SplitAt(text, "\n", -1, false)) {
    if (number > 0) out.AppendPart(text, begin - 1, begin);  // the line's end
    begin += line.size() + 1;
    if (out.size() > kTextBytesMax)
      return base::ResourceExhausted("indent makes more than ", kTextBytesMax, " bytes");
    if ((number > 0 || first) && (blank || !line.empty())) out.Append(prefix);
    out.Append(line);
    ++number;
  }
  return Value(std::move(out));
}

Result<Value> Replace(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value count = arguments.Get(2, "count");
  return ReplaceText(value.ToText(), arguments.Get(0, "old").ToString(),
                     arguments.Get(1, "new").ToText(), IntOr(count, -1));
}

Result<Value> Map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  if (!value.Truthy()) return Value::MakeList({});
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  const Value attribute = arguments.Get(SIZE_MAX, "attribute"),
              fallback = arguments.Get(SIZE_MAX, "default");
  Value::List out;
  for (const Value& item : items) {
    Value mapped;
    if (!attribute.is_undefined()) {
      ASSIGN_OR_RETURN(mapped, Attribute(item, attribute));
      if (mapped.is_undefined() && !fallback.is_undefined()) mapped = fallback;
    } else {
      Arguments rest;
      if (arguments.positional.empty())
        return base::InvalidArgument("map needs a filter or attribute=");
      rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
      rest.named = arguments.named;
      ASSIGN_OR_RETURN(mapped,
                       interpreter.ApplyFilter(arguments.positional[0].ToString(), item, rest));
    }
    out.push_back(std::move(mapped));
  }
  return Value::MakeList(std::move(out));
}

// select, reject (by_attribute false) and selectattr, rejectattr.
Result<Value> Choose(Interpreter& interpreter, const Value& value, const Arguments& arguments,
                     bool by_attribute, bool keep) {
  if (!value.Truthy()) return Value::MakeList({});
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  const std::size_t skip = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skip)
    return base::InvalidArgument("selectattr needs an attribute");
  Arguments rest;
  const bool has_test = arguments.positional.size() > skip;
  if (has_test)
    rest.positional.assign(arguments.positional.begin() + skip + 1, arguments.positional.end());
  Value::List out;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, Attribute(item, arguments.positional[0]));
    }
    bool holds = subject.Truthy();
    if (has_test) {
      ASSIGN_OR_RETURN(holds,
                       interpreter.ApplyTest(arguments.positional[skip].ToString(), subject, rest));
    }
    if (holds == keep) out.push_back(item);
  }
  return Value::MakeList(std::move(out));
}

Result<Value::List> Sorted(const Value& value, const Value& attribute, bool case_sensitive) {
  ASSIGN_OR_RETURN(Value::List items, Iterate(value));
  Status failed;
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    auto x = attribute.is_undefined() ? Result<Value>(a) : Attribute(a, attribute);
    auto y = attribute.is_undefined() ? Result<Value>(b) : Attribute(b, attribute);
    if (!x.ok() || !y.ok()) {
      failed = x.ok() ? y.status() : x.status();
      return false;
    }
    const bool fold = !case_sensitive && x->is_string() && y->is_string();
    if (fold && !WalkMeter::Walk((x->as_string().size() + y->as_string().size()) / 64))
      return false;
    const auto less = fold ? Result<bool>(Lower(x->text()).bytes() < Lower(y->text()).bytes())
                           : CompareValues("<", *x, *y);
    if (!less.ok()) failed = less.status();
    return less.ok() && *less;
  });
  if (!failed.ok()) return failed;
  return items;
}

Result<Value> Sort(Interpreter&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(Value::List items, Sorted(value, arguments.Get(2, "attribute"),
                                             arguments.Get(1, "case_sensitive").Truthy()));
  if (arguments.Get(0, "reverse").Truthy()) std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

Result<Value> Extreme(const Value& value, const Arguments& arguments, bool max) {
  ASSIGN_OR_RETURN(const Value::List items, Sorted(value, arguments.Get(1, "attribute"), false));
  if (items.empty()) return Value::MakeUndefined("an empty sequence");
  return max ? items.back() : items.front();
}

Result<Value> Unique(Interpreter& interpreter, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  Value::List out;
  for (const Value& item : items) {
    RETURN_IF_ERROR(interpreter.Charge(out.size() * 64));
    if (std::find(out.begin(), out.end(), item) == out.end()) out.push_back(item);
  }
  return Value::MakeList(std::move(out));
}

Result<Value> FirstOrLast(const Value& value, bool first) {
  ASSIGN_OR_RETURN(const Value::List items, Iterate(value));
  if (items.empty()) return Value::MakeUndefined("an empty sequence");
  return first ? items.front() : items.back();
}

Result<Value> ToInt(Interpreter&, const Value& value, const Arguments& arguments) {
  if (value.is_int()) return Value(value.as_int());
  if (value.is_number()) return Value(static_cast<std::int64_t>(value.as_double()));
  const std::string text = Strip(value.ToText(), nullptr, true, true).bytes();
  if (const auto whole = base::ParseNumber<std::int64_t>(text)) return Value(*whole);
  if (const auto real = base::ParseNumber<double>(text))
    return Value(static_cast<std::int64_t>(*real));
  return Value(IntOr(arguments.Get(0, "default"), 0));
}

Result<Value> ToFloat(Interpreter&, const Value& value, const Arguments&) {
  if (value.is_number()) return Value(value.as_double());
  return Value(
      base::ParseNumber<double>(Strip(value.ToText(), nullptr, true, true).bytes()).value_or(0.0));
}

Result<Value> Escape(Interpreter&, const Value& value, const Arguments&) {
  return Value::MakeMarkup(EscapeHtml(value));
}

Result<Value> FromJsonText(Interpreter&, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Json json, base::ParseJson(value.ToString()));
  return Value::FromJson(json);
}

Result<Value> Trim(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value characters = arguments.Get(0, "chars");
  return Value(Strip(value.ToText(), characters.is_string() ? &characters.as_string() : nullptr,
                     true, true));
}

#define FILTER(expression)                                                                        \
  [](Interpreter& interpreter, const Value& value, const Arguments& arguments) -> Result<Value> { \
    static_cast<void>(interpreter);                                                               \
    static_cast<void>(arguments);                                                                 \
    return expression;                                                                            \
  }

const std::map<std::string, Filter, std::less<>>& Filters() {
  static const std::map<std::string, Filter, std::less<>> kFilters = {
      {"tojson", ToJson},
      {"join", Join},
      {"length", Length},
      {"count", Length},
      {"default", Default},
      {"d", Default},
      {"items", Items},
      {"dictsort", DictSort},
      {"indent", Indent},
      {"replace", Replace},
      {"map", Map},
      {"sort", Sort},
      {"unique", Unique},
      {"int", ToInt},
      {"float", ToFloat},
      {"escape", Escape},
      {"e", Escape},
      {"trim", Trim},
      {"from_json", FromJsonText},
      {"safe", FILTER(Value::MakeMarkup(value.ToText()))},
      {"string", FILTER(Value(value.ToText()))},
      {"upper", FILTER(Value(Upper(value.ToText())))},
      {"lower", FILTER(Value(Lower(value.ToText())))},
      {"title", FILTER(Value(Title(value.ToText())))},
      {"capitalize", FILTER(Value(Capitalize(value.ToText())))},
      {"first", FILTER(FirstOrLast(value, true))},
      {"last", FILTER(FirstOrLast(value, false))},
      {"min", FILTER(Extreme(value, arguments, false))},
      {"max", FILTER(Extreme(value, arguments, true))},
      {"select", FILTER(Choose(interpreter, value, arguments, false, true))},
      {"reject", FILTER(Choose(interpreter, value, arguments, false, false))},
      {"selectattr", FILTER(Choose(interpreter, value, arguments, true, true))},
      {"rejectattr", FILTER(Choose(interpreter, value, arguments, true, false))},
      {"abs", FILTER(value.is_int()      ? Value(std::abs(value.as_int()))
                     : value.is_number() ? Value(std::fabs(value.as_double()))
                                         : value)},
      {"list",
       [](Interpreter&, const Value& value, const Arguments&) -> Result<Value> {
         ASSIGN_OR_RETURN(Value::List items, Iterate(value));
         return Value::MakeList(std::move(items));
       }},
      {"reverse",
       [](Interpreter&, const Value& value, const Arguments&) -> Result<Value> {
         return Slice(value, Value(), Value(), Value(-1));
       }},
  };
  return kFilters;
}

#define TEST(expression)                                                             \
  [](Interpreter&, const Value& value, const Arguments& arguments) -> Result<bool> { \
    static_cast<void>(arguments);                                                    \
    return expression;                                                               \
  }

const std::map<std::string, Test, std::less<>>& Tests() {
  static const std::map<std::string, Test, std::less<>> kTests = {
      {"defined", TEST(!value.is_undefined())},
      {"undefined", TEST(value.is_undefined())},
      {"none", TEST(value.is_none())},
      {"string", TEST(value.is_string())},
      {"number", TEST(value.is_number())},
      {"integer", TEST(value.is_int() && !value.is_bool())},
      {"float", TEST(value.is_number() && !value.is_int())},
      {"boolean", TEST(value.is_bool())},
      {"true", TEST(value.is_bool() && value.Truthy())},
      {"false", TEST(value.is_bool() && !value.Truthy())},
      {"mapping", TEST(value.is_dict())},
      {"sequence",
       TEST(value.is_list() || value.is_string() || value.is_dict() || value.is_undefined())},
      {"iterable",
       TEST(value.is_list() || value.is_string() || value.is_dict() || value.is_undefined())},
      {"callable", TEST(value.is_function())},
      {"odd", TEST(value.is_int() && value.as_int() % 2 != 0)},
      {"even", TEST(value.is_int() && value.as_int() % 2 == 0)},
      {"upper", TEST(value.is_string() && Upper(value.text()).bytes() == value.as_string())},
      {"lower", TEST(value.is_string() && Lower(value.text()).bytes() == value.as_string())},
      {"in", TEST(CompareValues("in", value, arguments.Get(0, "seq")))},
      {"equalto", TEST(value == arguments.Get(0, "other"))},
      {"eq", TEST(value == arguments.Get(0, "other"))},
      {"==", TEST(value == arguments.Get(0, "other"))},
      {"ne", TEST(!(value == arguments.Get(0, "other")))},
      {"!=", TEST(!(value == arguments.Get(0, "other")))},
      {"gt", TEST(CompareValues(">", value, arguments.Get(0, "other")))},
      {"ge", TEST(CompareValues(">=", value, arguments.Get(0, "other")))},
      {"lt", TEST(CompareValues("<", value, arguments.Get(0, "other")))},
      {"le", TEST(CompareValues("<=", value, arguments.Get(0, "other")))},
      {"divisibleby",
       TEST(value.is_int() && Divides(IntOr(arguments.Get(0, "num"), 0), value.as_int()))},
  };
  return kTests;
}

}  // namespace

bool HasFilter(std::string_view name) { return Filters().contains(name); }
bool HasTest(std::string_view name) { return Tests().contains(name); }

Result<Value> Interpreter::ApplyFilter(const std::string& name, const Value& value,
                                       const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end())
    return base::Unimplemented("the filter '", name, "' is not supported in chat templates");
  if (value.is_list()) RETURN_IF_ERROR(Charge(value.list().size() * 16));
  if (value.is_string()) RETURN_IF_ERROR(Charge(value.as_string().size()));
  return found->second(*this, value, arguments);
}

Result<bool> Interpreter::ApplyTest(const std::string& name, const Value& value,
                                    const Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end())
    return base::Unimplemented("the test '", name, "' is not supported in chat templates");
  return found->second(*this, value, arguments);
}

}  // namespace thermocline::text::jinja
