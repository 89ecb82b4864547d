#include "engine/text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/interruption.h"

namespace thermocline::text::jinja {

namespace {
constexpr int kLevelsMax = 100;                // of JSON
constexpr std::int64_t kWalkMax = 10'000'000;  // more than a rendering has steps
thread_local bool rendering = false;
thread_local std::int64_t walked = 0;
}  // namespace

WalkMeter::WalkMeter() {
  rendering = true;
  walked = 0;
}
WalkMeter::~WalkMeter() { rendering = false; }
bool WalkMeter::Walk(std::size_t elements) {
  if (!rendering) return true;
  walked += static_cast<std::int64_t>(elements);
  return walked <= kWalkMax;
}
std::int64_t WalkMeter::Take() { return std::exchange(walked, 0); }

Value::ListBox::ListBox(List elements) : items(std::move(elements)) {}
Value::ListBox::~ListBox() = default;
Value::DictBox::DictBox(Dict entries) : items(std::move(entries)) {}
Value::DictBox::~DictBox() = default;

void Value::Bury(Container* dead) noexcept {
  thread_local Container* graveyard = nullptr;
  thread_local bool draining = false;
  dead->next_dead = std::exchange(graveyard, dead);
  if (draining) return;
  draining = true;
  while (graveyard != nullptr) {
    const std::unique_ptr<Container> next(std::exchange(graveyard, graveyard->next_dead));
  }
  draining = false;
}

Value Arguments::Get(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return Value();
}

Value Value::FromJson(const Json& json) {
  if (json.is_null()) return MakeNone();
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_decimal()) return Value(Data(Decimal{json.as_decimal(), json.as_double()}));
  if (json.is_number()) return Value(json.as_double());
  if (json.is_string()) return Value(json.as_string());
  if (json.is_array()) {
    List items;
    for (const Json& item : json.as_array()) items.push_back(FromJson(item));
    return MakeList(std::move(items));
  }
  Value dict = MakeDict();
  if (base::Interrupted()) return dict;  // each member is compared with all earlier ones
  for (const auto& [key, value] : json.as_object()) dict.SetItem(Value(key), FromJson(value));
  return dict;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"undefined", "NoneType", "bool", "int",     "float",
                                    "str",       "list",     "dict", "function"};
  return kNames[data_.index()];
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_int()) return as_int() != 0;
  if (is_number()) return as_double() != 0;
  if (is_string()) return !as_string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return !dict().empty();
  return true;
}

bool Value::Equals(const Value& other, int& budget, int level) const {
  if (--budget < 0 || level > kLevelsMax || !WalkMeter::Walk(1)) return false;
  if (is_number() && other.is_number()) {
    return is_int() && other.is_int() ? as_int() == other.as_int()
                                      : as_double() == other.as_double();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_string())
    return as_string().size() == other.as_string().size() &&
           WalkMeter::Walk(as_string().size() / 64) && as_string() == other.as_string();
  if (is_list()) {
    return list().size() == other.list().size() &&
           std::equal(
               list().begin(), list().end(), other.list().begin(),
               [&](const Value& a, const Value& b) { return a.Equals(b, budget, level + 1); });
  }
  if (is_dict()) {
    return dict().size() == other.dict().size() &&
           std::all_of(dict().begin(), dict().end(), [&](const auto& entry) {
             const Value* found = other.Find(entry.first);
             return found != nullptr && found->Equals(entry.second, budget, level + 1);
           });
  }
  return is_undefined() || is_none();
}

const Value* Value::Find(const Value& key) const {
  for (const auto& entry : dict()) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

const Value* Value::FindKey(std::string_view key) const {
  WalkMeter::Walk(dict().size() / 16);
  for (const auto& entry : dict()) {
    if (entry.first.is_string() && entry.first.as_string() == key) return &entry.second;
  }
  return nullptr;
}

void Value::SetItem(Value key, Value value) {
  if (const Value* old = Find(key)) {
    *const_cast<Value*>(old) = std::move(value);
  } else {
    dict().emplace_back(std::move(key), std::move(value));
  }
}

namespace {

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::fabs(value) < 1e16) {
    char buffer[40];
    std::snprintf(buffer, sizeof(buffer), "%.1f", value);
    return buffer;
  }
  return StrCat(value);
}

std::string QuotedText(const std::string& text) {
  const bool use_double =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == quote)
      (out += '\\') += c;
    else
      out.push_back(c);
  }
  out.push_back(quote);
  return out;
}

void AppendEscaped(std::string_view text, bool ensure_ascii, std::string& out) {
  char buffer[16];
  const auto escape = [&](unsigned unit) {
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", unit);
    out += buffer;
  };
  out.push_back('"');
  for (std::size_t pos = 0; pos < text.size();) {
    const unsigned char byte = text[pos];
    if (byte < 0x80 || !ensure_ascii) {
      ++pos;
      switch (byte) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\b':
          out += "\\b";
          break;
        case '\f':
          out += "\\f";
          break;
        default:
          if (byte < 0x20 || (byte == 0x7F && ensure_ascii))
            escape(byte);
          else
            out.push_back(byte);
      }
      continue;
    }
    const char32_t c = base::DecodeUtf8(text, pos);
    if (c >= 0x10000) {
      escape(0xD7C0 + (c >> 10));
      escape(0xDC00 + (c & 0x3FF));
    } else {
      escape(static_cast<unsigned>(c));
    }
  }
  out.push_back('"');
}

}  // namespace

TemplateText Value::ToText() const {
  if (is_undefined()) return {};
  return is_string() ? text() : TemplateText::Data(Repr());
}

void Value::AppendRepr(std::string& out, int level) const {
  if (out.size() > kTextBytesMax || level > kLevelsMax) {
    if (!out.ends_with("...")) out += "...";
    return;
  }
  if (is_undefined()) {
    out += "Undefined";
  } else if (is_none()) {
    out += "None";
  } else if (is_bool()) {
    out += std::get<bool>(data_) ? "True" : "False";
  } else if (is_int()) {
    out += StrCat(as_int());
  } else if (Is<Decimal>()) {
    out += std::get<Decimal>(data_).text;
  } else if (is_number()) {
    out += FloatText(as_double());
  } else if (is_string()) {
    out += QuotedText(as_string());
  } else if (is_function()) {
    out += "<function>";
  } else if (is_list()) {
    out += tuple_ ? "(" : "[";
    bool first = true;
    for (const Value& item : list()) {
      if (!first) out += ", ";
      first = false;
      item.AppendRepr(out, level + 1);
    }
    out += !tuple_ ? "]" : list().size() == 1 ? ",)" : ")";
  } else {
    out += "{";
    bool first = true;
    for (const auto& [key, value] : dict()) {
      if (!first) out += ", ";
      first = false;
      key.AppendRepr(out, level + 1);
      out += ": ";
      value.AppendRepr(out, level + 1);
    }
    out += "}";
  }
}

const void* Value::Box() const {
  if (is_list()) return &list();
  return is_dict() ? static_cast<const void*>(&dict()) : nullptr;
}

bool Value::Reaches(const Value& container, int& budget, int level) const {
  if (--budget < 0 || level > kLevelsMax || !WalkMeter::Walk(1) ||
      (Box() != nullptr && Box() == container.Box()))
    return true;
  const auto reaches = [&](const Value& v) { return v.Reaches(container, budget, level + 1); };
  if (is_list()) return std::any_of(list().begin(), list().end(), reaches);
  return is_dict() && std::any_of(dict().begin(), dict().end(),
                                  [&](const auto& e) { return reaches(e.second); });
}

Status AppendJson(const Value& value, const JsonStyle& style, int level, std::string& out) {
  if (level > kLevelsMax) return base::InvalidArgument("tojson: nested too deeply");
  if (out.size() > style.bytes_max)
    return base::ResourceExhausted("tojson: more than ", style.bytes_max, " bytes");
  const auto newline = [&](int at) {
    if (style.indent < 0) return;
    out.push_back('\n');
    out.append(base::Area(style.indent, at), ' ');
  };
  if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.Truthy() ? "true" : "false";
  } else if (value.is_number()) {
    out += value.Repr();
  } else if (value.is_string()) {
    AppendEscaped(value.as_string(), style.ensure_ascii, out);
  } else if (value.is_list()) {
    out.push_back('[');
    bool first = true;
    for (const Value& item : value.list()) {
      if (!first) out += style.item_separator;
      first = false;
      newline(level + 1);
      RETURN_IF_ERROR(AppendJson(item, style, level + 1, out));
    }
    if (!first) newline(level);
    out.push_back(']');
  } else if (value.is_dict()) {
    Value::Dict entries = value.dict();
    if (style.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.first.ToString() < b.first.ToString();
      });
    }
    out.push_back('{');
    bool first = true;
    for (const auto& [key, item] : entries) {
      if (!first) out += style.item_separator;
      first = false;
      newline(level + 1);
      AppendEscaped(key.ToString(), style.ensure_ascii, out);
      out += style.key_separator;
      RETURN_IF_ERROR(AppendJson(item, style, level + 1, out));
    }
    if (!first) newline(level);
    out.push_back('}');
  } else {
    return base::InvalidArgument("tojson: a value of type ", value.type_name(),
                                 " has no JSON form");
  }
  return OkStatus();
}

CharacterEdges::CharacterEdges(std::string_view text)
    : characters_(static_cast<std::int64_t>(CountCharacters(text))) {
  if (static_cast<std::size_t>(characters_) == text.size()) return;
  edges_.reserve(static_cast<std::size_t>(characters_) + 1);
  edges_.push_back(0);
  for (std::size_t pos = 0; pos < text.size();) {
    base::DecodeUtf8(text, pos);
    edges_.push_back(static_cast<std::uint32_t>(pos));
  }
}

std::size_t CountCharacters(std::string_view text) {
  std::size_t out = 0;
  for (std::size_t pos = 0; pos < text.size(); ++out) base::DecodeUtf8(text, pos);
  return out;
}

}  // namespace thermocline::text::jinja
