// Methods of strings, lists and dicts, and the global functions.
#include <algorithm>
#include <array>
#include <ctime>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_text.h"

namespace thermocline::text::jinja {
namespace {

constexpr std::int64_t kRangeMax = 100'000;

Result<TemplateText> TextArgument(const Arguments& arguments, std::size_t index,
                                  const char* method) {
  const Value value = arguments.Get(index, "");
  if (!value.is_string())
    return base::InvalidArgument(method, "() needs a string, not a ", value.type_name());
  return value.text();
}

// "{} and {name}".format(...)
Result<Value> Format(const TemplateText& text, const Arguments& arguments) {
  const std::string& format = text.bytes();
  TemplateText out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool twice = (c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c;
    if (twice || c != '{') {
      out.AppendPart(text, i, i + 1);
      i += twice ? 1 : 0;
      continue;
    }
    const std::size_t end = format.find('}', i);
    if (end == std::string::npos) return base::InvalidArgument("format(): '{' without '}'");
    const std::string field = format.substr(i + 1, end - i - 1);
    const auto index =
        field.empty() ? std::optional<std::size_t>(next++) : base::ParseNumber<std::size_t>(field);
    const Value value =
        index.has_value() ? arguments.Get(*index, "") : arguments.Get(SIZE_MAX, field);
    if (value.is_undefined())
      return base::InvalidArgument("format(): no value for '{", field, "}'");
    out.Append(value.ToText());
    if (out.size() > kTextBytesMax)
      return base::ResourceExhausted("format() makes more than ", kTextBytesMax, " bytes");
    i = end;
  }
  return Value(std::move(out));
}

Result<Value> StartsOrEnds(const std::string& text, const Value& affix, bool start) {
  const Value::List choices = affix.is_list() ? affix.list() : Value::List{affix};
  for (const Value& choice : choices) {
    if (!choice.is_string())
      return base::InvalidArgument("startswith() and endswith() need a string, not a ",
                                   choice.type_name());
    if (start ? text.starts_with(choice.as_string()) : text.ends_with(choice.as_string()))
      return Value(true);
  }
  return Value(false);
}

Value ListOf(TextParts parts) {
  return Value::MakeList(
      Value::List(std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())));
}

Value Split(const TemplateText& text, const Value& separator, std::int64_t count_max,
            bool from_right) {
  TextParts parts = separator.is_string() && !separator.as_string().empty()
                        ? SplitAt(text, separator.as_string(), count_max, from_right)
                        : SplitWords(text, count_max);
  return ListOf(std::move(parts));
}

Result<Value> StringMethod(const TemplateText& whole, const std::string& name,
                           const Arguments& arguments) {
  const std::string& text = whole.bytes();
  const Value first = arguments.Get(0, "");
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    return Value(Strip(whole, first.is_string() ? &first.as_string() : nullptr, name != "rstrip",
                       name != "lstrip"));
  }
  if (name == "startswith" || name == "endswith")
    return StartsOrEnds(text, first, name == "startswith");
  if (name == "split" || name == "rsplit") {
    if (first.is_string() && first.as_string().empty())
      return base::InvalidArgument("split(): empty separator");
    const Value limit = arguments.Get(1, "maxsplit");
    return Split(whole, arguments.Get(0, "sep"), limit.is_int() ? limit.as_int() : -1,
                 name == "rsplit");
  }
  if (name == "splitlines") {
    TextParts lines = SplitAt(whole, "\n", -1, false);
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    return ListOf(std::move(lines));
  }
  if (name == "upper") return Value(Upper(whole));
  if (name == "lower") return Value(Lower(whole));
  if (name == "title") return Value(Title(whole));
  if (name == "capitalize") return Value(Capitalize(whole));
  if (name == "format") return Format(whole, arguments);
  if (name == "replace") {
    ASSIGN_OR_RETURN(const TemplateText from, TextArgument(arguments, 0, "replace"));
    ASSIGN_OR_RETURN(const TemplateText to, TextArgument(arguments, 1, "replace"));
    const Value limit = arguments.Get(2, "count");
    return ReplaceText(whole, from.bytes(), to, limit.is_int() ? limit.as_int() : -1);
  }
  if (name == "find" || name == "rfind" || name == "index") {
    ASSIGN_OR_RETURN(const TemplateText needle, TextArgument(arguments, 0, "find"));
    const std::size_t at =
        name == "rfind" ? FindLastText(text, needle.bytes()) : FindText(text, needle.bytes());
    if (at == std::string::npos && name == "index")
      return base::InvalidArgument("substring not found");
    return at == std::string::npos ? Value(-1)
                                   : Value(CountCharacters(std::string_view(text).substr(0, at)));
  }
  if (name == "count") {
    ASSIGN_OR_RETURN(const TemplateText needle, TextArgument(arguments, 0, "count"));
    return Value(needle.empty() ? text.size() + 1
                                : SplitAt(whole, needle.bytes(), -1, false).size() - 1);
  }
  if (name == "isdigit" || name == "isspace") {
    const std::string_view allowed = name == "isdigit" ? "0123456789" : " \t\n\r\v\f";
    return Value(!text.empty() && text.find_first_not_of(allowed) == std::string::npos);
  }
  if (name == "join") {
    ASSIGN_OR_RETURN(const Value::List items, Iterate(first));
    TemplateText out;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out.Append(whole);
      out.Append(items[i].ToText());
      if (out.size() > kTextBytesMax)
        return base::ResourceExhausted("join() makes more than ", kTextBytesMax, " bytes");
    }
    return Value(std::move(out));
  }
  return base::InvalidArgument("strings have no method '", name, "' in chat templates");
}

// Rejects putting a value into a container that it contains: such a cycle would never be freed.
Status RefuseKnot(const Value& container, const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    if (value.Reaches(container))
      return base::InvalidArgument("a ", container.type_name(), " cannot be put inside itself");
  }
  return OkStatus();
}

Result<Value> ListMethod(const Value& object, const std::string& name, const Arguments& arguments) {
  Value::List& list = object.list();
  const Value first = arguments.Get(0, "");
  if (name == "append" || name == "extend" || name == "insert")
    RETURN_IF_ERROR(RefuseKnot(object, arguments));
  if (name == "append") {
    list.push_back(first);
    return Value::MakeNone();
  }
  if (name == "extend") {
    ASSIGN_OR_RETURN(const Value::List items, Iterate(first));
    list.insert(list.end(), items.begin(), items.end());
    return Value::MakeNone();
  }
  if (name == "insert" && first.is_int()) {
    const std::int64_t size = list.size();
    const std::int64_t at = std::clamp<std::int64_t>(
        first.as_int() < 0 ? first.as_int() + size : first.as_int(), 0, size);
    list.insert(list.begin() + at, arguments.Get(1, ""));
    return Value::MakeNone();
  }
  if (name == "pop") {
    const std::int64_t size = list.size();
    std::int64_t at = first.is_int() ? first.as_int() : -1;
    at = at < 0 ? at + size : at;
    if (at < 0 || at >= size) return base::InvalidArgument("pop index out of range");
    Value out = list[at];
    list.erase(list.begin() + at);
    return out;
  }
  if (name == "count") return Value(std::count(list.begin(), list.end(), first));
  if (name == "index") {
    const auto found = std::find(list.begin(), list.end(), first);
    if (found == list.end()) return base::InvalidArgument("index(): the value is not in the list");
    return Value(found - list.begin());
  }
  return base::InvalidArgument("lists have no method '", name, "' in chat templates");
}

Result<Value> DictMethod(const Value& object, const std::string& name, const Arguments& arguments) {
  Value::Dict& dict = object.dict();
  const Value first = arguments.Get(0, "");
  if (name == "get") {
    const Value* found = object.Find(first);
    if (found != nullptr) return *found;
    const Value fallback = arguments.Get(1, "default");
    return fallback.is_undefined() ? Value::MakeNone() : fallback;
  }
  if (name == "pop") {
    const auto found = std::find_if(dict.begin(), dict.end(),
                                    [&](const auto& entry) { return entry.first == first; });
    const Value fallback = arguments.Get(1, "default");
    if (found == dict.end())
      return fallback.is_undefined()
                 ? Result<Value>(base::InvalidArgument("pop(): no key '", first.ToString(), "'"))
                 : Result<Value>(fallback);
    Value out = found->second;
    dict.erase(found);
    return out;
  }
  if (name == "update") {
    RETURN_IF_ERROR(RefuseKnot(object, arguments));
    if (first.is_dict()) {
      for (const auto& [key, value] : Value::Dict(first.dict()))
        object.dict().emplace_back(key, value);
      Value merged = Value::MakeDict();
      for (const auto& [key, value] : object.dict()) merged.SetItem(key, value);
      object.dict() = merged.dict();
    }
    return Value::MakeNone();
  }
  if (name == "copy") return Value::MakeDict(dict);
  Value::List out;
  for (const auto& [key, value] : dict) {
    if (name == "keys")
      out.push_back(key);
    else if (name == "values")
      out.push_back(value);
    else
      out.push_back(Value::MakeList({key, value}, true));
  }
  return Value::MakeList(std::move(out));
}

Result<Value> Range(Interpreter& interpreter, const Arguments& arguments) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3) return base::InvalidArgument("range() takes one to three numbers");
  for (std::size_t i = 0; i < count; ++i) {
    if (!arguments.positional[i].is_int())
      return base::InvalidArgument("range() needs integers, not a ",
                                   arguments.positional[i].type_name());
    bounds[count == 1 ? 1 : i] = arguments.positional[i].as_int();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return base::InvalidArgument("the step of range() is 0");
  Value::List out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (std::ssize(out) >= kRangeMax)
      return base::ResourceExhausted("range() is longer than ", kRangeMax);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(interpreter.Charge(out.size() * 64));
  return Value::MakeList(std::move(out));
}

Result<Value> DictFromArguments(Interpreter&, const Arguments& arguments) {
  Value dict = Value::MakeDict();
  if (!arguments.positional.empty() && arguments.positional[0].is_dict())
    dict.dict() = arguments.positional[0].dict();
  for (const auto& [name, value] : arguments.named) dict.SetItem(Value::MakeOwn(name), value);
  return dict;
}

}  // namespace

bool IsDictMethod(std::string_view name) {
  static constexpr std::array kNames = {"get", "items", "keys", "values", "pop", "update", "copy"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Result<Value> CallMethod(Interpreter& interpreter, const Value& object, const std::string& name,
                         const Arguments& arguments) {
  if (object.is_string()) {
    RETURN_IF_ERROR(interpreter.Charge(object.as_string().size()));
    return StringMethod(object.text(), name, arguments);
  }
  if (object.is_list()) {
    RETURN_IF_ERROR(interpreter.Charge(object.list().size()));
    return ListMethod(object, name, arguments);
  }
  if (object.is_dict() && IsDictMethod(name)) return DictMethod(object, name, arguments);
  return base::InvalidArgument("a ", object.type_name(), " has no method '", name, "'");
}

void AddGlobals(Interpreter& interpreter) {
  interpreter.SetGlobal("range", Value::MakeFunction(Range));
  interpreter.SetGlobal("namespace", Value::MakeFunction(DictFromArguments));
  interpreter.SetGlobal("dict", Value::MakeFunction(DictFromArguments));
  interpreter.SetGlobal(
      "raise_exception",
      Value::MakeFunction([](Interpreter&, const Arguments& arguments) -> Result<Value> {
        return base::InvalidArgument("the chat template refuses this conversation: ",
                                     arguments.Get(0, "message").ToString());
      }));
  interpreter.SetGlobal(
      "strftime_now",
      Value::MakeFunction([](Interpreter&, const Arguments& arguments) -> Result<Value> {
        const std::time_t now = std::time(nullptr);
        std::tm local{};
        localtime_r(&now, &local);
        std::array<char, 256> text{};
        const std::size_t length = std::strftime(
            text.data(), text.size(), arguments.Get(0, "format").ToString().c_str(), &local);
        return Value(std::string(text.data(), length));
      }));
}

}  // namespace thermocline::text::jinja
