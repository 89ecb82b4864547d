// Operators, subscripts and attributes with Python's semantics.
#include <algorithm>
#include <cmath>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_text.h"

namespace thermocline::text::jinja {
namespace {

constexpr std::size_t kRepeatedBytesMax = 1 << 20;
constexpr std::size_t kListMax = 1'000'000;

Status TypeError(const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined())
      return base::InvalidArgument("'", value->undefined_name(), "' is undefined");
  }
  return base::InvalidArgument("unsupported operand types for ", op, ": '", a.type_name(),
                               "' and '", b.type_name(), "'");
}

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> Power(std::int64_t a, std::int64_t b) {
  if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  const bool small = a >= -1 && a <= 1;  // no overflow with any exponent
  std::int64_t out = 1;
  for (std::int64_t i = 0; i < (small ? b % 2 + 2 * (b > 0) : b); ++i) {
    if (__builtin_mul_overflow(out, a, &out))
      return base::InvalidArgument("integer overflow in **");
  }
  return Value(out);
}

Result<Value> Integers(const std::string& op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  const bool overflow = op == "+"   ? __builtin_add_overflow(a, b, &out)
                        : op == "-" ? __builtin_sub_overflow(a, b, &out)
                                    : op == "*" && __builtin_mul_overflow(a, b, &out);
  if (overflow) return base::InvalidArgument("integer overflow in ", op);
  if (op == "+" || op == "-" || op == "*") return Value(out);
  if (op == "**") return Power(a, b);
  if (b == 0 || (a == INT64_MIN && b == -1))
    return base::InvalidArgument("division by zero or overflow");
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (op == "//") return Value(FloorDivide(a, b));
  return Value(a - FloorDivide(a, b) * b);
}

Result<Value> Floats(const std::string& op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return base::InvalidArgument("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  return Value(a - std::floor(a / b) * b);
}

// 'text %s and %d' % values
Result<Value> FormatPercent(const TemplateText& text, const Value& values) {
  const std::string& format = text.bytes();
  const Value::List list = values.is_list() ? values.list() : Value::List{values};
  TemplateText out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const std::size_t at = std::min(format.find('%', i), format.size());
    out.AppendPart(text, i, at);
    if (at == format.size()) break;
    i = at + 1;
    const char kind = i < format.size() ? format[i] : ' ';
    if (kind == '%') {
      out.AppendPart(text, at, i);
    } else if ((kind == 's' || kind == 'd') && next < list.size()) {
      out.Append(list[next++].ToText());
    } else {
      return base::InvalidArgument("the format '%", std::string(1, kind),
                                   "' is not supported or has no value");
    }
  }
  return Value(std::move(out));
}

TemplateText Joined(TemplateText a, const TemplateText& b) {
  a.Append(b);
  return a;
}

bool IsSequence(const Value& value) { return value.is_list() || value.is_string(); }

CharacterEdges EdgesOf(const Value& sequence) {
  return sequence.is_string() ? CharacterEdges(sequence.as_string()) : CharacterEdges();
}

// Index or slice bound: negative values count from the end.
std::int64_t Clamp(const Value& bound, std::int64_t size, std::int64_t absent, std::int64_t low,
                   std::int64_t high) {
  if (!bound.is_int()) return absent;
  const std::int64_t at = bound.as_int() < 0 ? bound.as_int() + size : bound.as_int();
  return std::clamp(at, low, high);
}

Result<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string() && item.is_string())
    return FindText(container.as_string(), item.as_string()) != std::string::npos;
  if (container.is_dict()) return container.Find(item) != nullptr;
  if (container.is_list())
    return std::find(container.list().begin(), container.list().end(), item) !=
           container.list().end();
  if (container.is_undefined()) return false;
  return base::InvalidArgument("'in' needs a container, not a ", container.type_name());
}

// -1, 0 or 1.
Result<int> Order(const Value& a, const Value& b, int level = 0) {
  constexpr int kLevelsMax = 100;
  if (level > kLevelsMax) return base::InvalidArgument("lists nested too deeply are compared");
  WalkMeter::Walk(1 + (a.is_string() && b.is_string()
                           ? std::min(a.as_string().size(), b.as_string().size()) / 64
                           : 0));
  if (a.is_number() && b.is_number())
    return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double() ? 1 : 0;
  if (a.is_string() && b.is_string())
    return a.as_string() < b.as_string() ? -1 : a.as_string() > b.as_string() ? 1 : 0;
  if (a.is_list() && b.is_list()) {
    for (std::size_t i = 0; i < std::min(a.list().size(), b.list().size()); ++i) {
      if (!(a.list()[i] == b.list()[i])) return Order(a.list()[i], b.list()[i], level + 1);
    }
    return a.list().size() < b.list().size() ? -1 : a.list().size() > b.list().size() ? 1 : 0;
  }
  return TypeError("<", a, b);
}

}  // namespace

Result<Value> Binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") return Value(Joined(a.ToText(), b.ToText()));
  if (a.is_number() && b.is_number())
    return a.is_int() && b.is_int() ? Integers(op, a.as_int(), b.as_int())
                                    : Floats(op, a.as_double(), b.as_double());
  if (op == "+" && a.is_string() && b.is_string() && (a.is_markup() || b.is_markup()))
    return Value::MakeMarkup(Joined(EscapeHtml(a), EscapeHtml(b)));
  if (op == "+" && a.is_string() && b.is_string()) return Value(Joined(a.text(), b.text()));
  if (op == "+" && a.is_list() && b.is_list()) {
    if (a.list().size() + b.list().size() > kListMax)
      return base::ResourceExhausted("a list is longer than ", kListMax);
    Value::List joined = a.list();
    joined.insert(joined.end(), b.list().begin(), b.list().end());
    return Value::MakeList(std::move(joined), a.is_tuple());
  }
  if (op == "%" && a.is_string()) return FormatPercent(a.text(), b);
  if (op == "*" && a.is_string() && b.is_int()) {
    const std::int64_t times = std::max<std::int64_t>(0, b.as_int());
    if (times > static_cast<std::int64_t>(kRepeatedBytesMax / (a.as_string().size() + 1)))
      return base::ResourceExhausted("a repeated string is longer than ", kRepeatedBytesMax,
                                     " bytes");
    TemplateText out;
    for (std::int64_t i = 0; i < times; ++i) out.Append(a.text());
    return Value(std::move(out));
  }
  return TypeError(op, a, b);
}

bool Divides(std::int64_t by, std::int64_t n) {
  return by == -1 || (by != 0 && n % by == 0);  // the least number has no remainder by -1
}

Result<bool> CompareValues(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return a == b;
  if (op == "!=") return !(a == b);
  if (op == "in") return Contains(b, a);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const bool contained, Contains(b, a));
    return !contained;
  }
  ASSIGN_OR_RETURN(const int order, Order(a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

Result<Value> GetItem(const Value& object, const Value& key) {
  if (object.is_undefined())
    return base::InvalidArgument("'", object.undefined_name(), "' is undefined");
  if (object.is_dict()) {
    const Value* found = object.Find(key);
    return found != nullptr ? *found : Value::MakeUndefined(key.ToString());
  }
  if (IsSequence(object) && key.is_int()) {
    const CharacterEdges edges = EdgesOf(object);
    const std::int64_t size = object.is_string() ? edges.characters() : object.list().size();
    const std::int64_t at = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (at < 0 || at >= size) return Value::MakeUndefined(StrCat("element ", key.as_int()));
    return object.is_string() ? Value(object.text().Part(edges[at], edges[at + 1]))
                              : object.list()[at];
  }
  return Value::MakeUndefined(key.ToString());
}

Result<Value> GetAttribute(const Value& object, const std::string& name) {
  if (object.is_undefined())
    return base::InvalidArgument("'", object.undefined_name(), "' is undefined");
  if (object.is_dict()) {
    const Value* found = object.FindKey(name);
    if (found != nullptr) return *found;
  }
  return Value::MakeUndefined(name);
}

Result<Value> Slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (!IsSequence(object))
    return base::InvalidArgument("a ", object.type_name(), " cannot be sliced");
  const CharacterEdges edges = EdgesOf(object);
  const std::int64_t size = object.is_string() ? edges.characters() : object.list().size();
  const std::int64_t stride = step.is_int() ? step.as_int() : 1;
  if (stride == 0) return base::InvalidArgument("the slice step is 0");
  const bool forward = stride > 0;
  const std::int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  std::int64_t at = Clamp(start, size, forward ? 0 : size - 1, low, high);
  const std::int64_t end = Clamp(stop, size, forward ? size : -1, low, high);
  TemplateText text;
  Value::List items;
  while (forward ? at < end : at > end) {
    if (object.is_string())
      text.AppendPart(object.text(), edges[at], edges[at + 1]);
    else
      items.push_back(object.list()[at]);
    if (forward ? stride >= end - at : stride <= end - at) break;  // the sum may overflow
    at += stride;
  }
  return object.is_string() ? Value(std::move(text))
                            : Value::MakeList(std::move(items), object.is_tuple());
}

Result<Value::List> Iterate(const Value& value) {
  Value::List out;
  if (value.is_list()) return value.list();
  if (value.is_dict()) {
    for (const auto& entry : value.dict()) out.push_back(entry.first);
    return out;
  }
  if (value.is_string()) {
    const CharacterEdges edges(value.as_string());
    for (std::int64_t i = 0; i < edges.characters(); ++i)
      out.emplace_back(value.text().Part(edges[i], edges[i + 1]));
    return out;
  }
  if (value.is_undefined()) return out;
  return base::InvalidArgument("a ", value.type_name(), " is not iterable");
}

}  // namespace thermocline::text::jinja
