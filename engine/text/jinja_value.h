// Values of the template language, with Python's semantics as far as chat templates need them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/template_text.h"

namespace thermocline::text::jinja {

class Value;
class Interpreter;

// Counts the elements that comparisons visit while this thread renders a template, so that one
// operation on large values cannot take longer than a rendering may. Outside of a rendering nothing
// is counted.
class WalkMeter {
 public:
  WalkMeter();
  ~WalkMeter();
  WalkMeter(const WalkMeter&) = delete;
  WalkMeter& operator=(const WalkMeter&) = delete;
  // Counts `elements`, or bytes / 64. Returns false if too many were counted since the last Take:
  // the operation should end, and whatever it returns is refused by Budget::Charge.
  static bool Walk(std::size_t elements);
  // Returns the count since the last call.
  static std::int64_t Take();
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Positional argument `index`, otherwise the one called `name`, otherwise undefined.
  Value Get(std::size_t index, std::string_view name) const;
};

// A macro or a global function.
using Function = std::function<Result<Value>(Interpreter&, const Arguments&)>;

// Lists and dicts are shared by reference, as in Python. Dicts keep their order.
class Value {
 public:
  using List = std::vector<Value, CountedAllocator<Value>>;
  using Dict = std::vector<std::pair<Value, Value>, CountedAllocator<std::pair<Value, Value>>>;
  struct Undefined {
    std::string name;
  };
  struct None {};
  struct Decimal {
    std::string text;
    double nearest;
  };
  static constexpr std::size_t kBoxBytes = 112;  // of a Container with its reference count
  // These own their elements. Dead ones are linked in a list, so that a chain of a million nested
  // lists is destroyed in a loop, without deep recursion and without allocating memory.
  struct Container {
    virtual ~Container() = default;
    Container* next_dead = nullptr;
    HeldShare held{kBoxBytes};
  };
  struct ListBox final : Container {
    explicit ListBox(List elements);
    ~ListBox() override;
    List items;
  };
  struct DictBox final : Container {
    explicit DictBox(Dict entries);
    ~DictBox() override;
    Dict items;
  };

  Value() : data_(Undefined{}) {}
  static Value MakeUndefined(std::string name) { return Value(Data(Undefined{std::move(name)})); }
  static Value MakeNone() { return Value(Data(None{})); }
  static Value MakeList(List items, bool tuple = false) {
    Value value(Data(std::shared_ptr<ListBox>(new ListBox(std::move(items)), Bury)));
    value.tuple_ = tuple;
    return value;
  }
  static Value MakeDict(Dict items = {}) {
    return Value(Data(std::shared_ptr<DictBox>(new DictBox(std::move(items)), Bury)));
  }
  static Value MakeFunction(Function function) {
    return Value(Data(std::make_shared<Function>(std::move(function))));
  }
  // A string marked safe for HTML: strings added to it are escaped, as with Jinja's Markup.
  static Value MakeMarkup(TemplateText text) {
    Value value(std::move(text));
    value.markup_ = true;
    return value;
  }
  // Converts JSON; its texts are data. If interrupted (base::Interrupted), objects are empty.
  static Value FromJson(const Json& json);
  // A text that belongs to the template itself.
  static Value MakeOwn(std::string text) { return Value(TemplateText::Own(std::move(text))); }
  Value(bool value) : data_(value) {}  // NOLINT: implicit by design
  template <std::integral T>
  Value(T value) : data_(static_cast<std::int64_t>(value)) {}  // NOLINT
  Value(double value) : data_(value) {}                        // NOLINT
  Value(TemplateText value) : data_(std::move(value)) {}       // NOLINT
  // Data; so is every text whose origin a built-in does not track.
  Value(std::string value) : data_(TemplateText::Data(std::move(value))) {}  // NOLINT
  Value(std::string_view value) : Value(std::string(value)) {}               // NOLINT
  Value(const char* value) : Value(std::string(value)) {}                    // NOLINT

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<std::int64_t>() || is_bool(); }  // as in Python, True is 1
  // Includes numbers that neither 64 bits nor a double can hold: their text is kept, and arithmetic
  // uses doubles.
  bool is_number() const { return is_int() || Is<double>() || Is<Decimal>(); }
  bool is_string() const { return Is<TemplateText>(); }
  bool is_list() const { return Is<std::shared_ptr<ListBox>>(); }
  bool is_dict() const { return Is<std::shared_ptr<DictBox>>(); }
  bool is_function() const { return Is<std::shared_ptr<Function>>(); }
  bool is_tuple() const { return tuple_; }
  bool is_markup() const { return markup_; }
  const char* type_name() const;  // Python's: "str", "list", ...

  // Requires: the value has that type.
  std::int64_t as_int() const {
    return is_bool() ? std::get<bool>(data_) : std::get<std::int64_t>(data_);
  }
  double as_double() const {
    if (Is<Decimal>()) return std::get<Decimal>(data_).nearest;
    return is_int() ? static_cast<double>(as_int()) : std::get<double>(data_);
  }
  const std::string& as_string() const { return text().bytes(); }
  const TemplateText& text() const { return std::get<TemplateText>(data_); }
  List& list() const { return std::get<std::shared_ptr<ListBox>>(data_)->items; }
  Dict& dict() const { return std::get<std::shared_ptr<DictBox>>(data_)->items; }
  const Function& function() const { return *std::get<std::shared_ptr<Function>>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }

  bool Truthy() const;
  bool operator==(const Value& other) const {
    int budget = kComparisonsMax;
    return Equals(other, budget, 0);
  }
  // True if `container`, a list or dict, is this value or is nested inside it, or if the search
  // takes too long.
  bool Reaches(const Value& container) const {
    int budget = kComparisonsMax;
    return Reaches(container, budget, 0);
  }
  // Entry of a dict, or nullptr.
  const Value* Find(const Value& key) const;
  const Value* FindKey(std::string_view key) const;
  void SetItem(Value key, Value value);  // Requires: a dict.

  TemplateText ToText() const;  // as str(); data if the value is not a string
  std::string ToString() const { return is_string() ? as_string() : ToText().bytes(); }
  // As repr(), inside lists and dicts. Ends with "..." beyond 16 MiB.
  std::string Repr() const {
    std::string out;
    AppendRepr(out, 0);
    return out;
  }

 private:
  // Destroys one, at once or after the one that is currently being destroyed.
  static void Bury(Container* dead) noexcept;
  // A list may contain another many times, so a small value may expand exponentially: all walks are
  // bounded.
  static constexpr int kComparisonsMax = 1'000'000;
  bool Equals(const Value& other, int& budget, int level) const;
  bool Reaches(const Value& container, int& budget, int level) const;
  void AppendRepr(std::string& out, int level) const;
  const void* Box() const;  // identity of a list or dict, else nullptr

  using Data = std::variant<Undefined, None, bool, std::int64_t, double, TemplateText,
                            std::shared_ptr<ListBox>, std::shared_ptr<DictBox>,
                            std::shared_ptr<Function>, Decimal>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
  bool tuple_ = false;
  bool markup_ = false;
};

inline constexpr std::size_t kTextBytesMax = std::size_t{16} << 20;  // of one value as text

struct JsonStyle {
  std::size_t bytes_max = kTextBytesMax;  // of the text
  int indent = -1;                        // spaces a level; -1 = one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// As Python's json.dumps. InvalidArgument for values that JSON cannot represent.
Status AppendJson(const Value& value, const JsonStyle& style, int level, std::string& out);

// The byte offset of each character, followed by the text's size; an invalid UTF-8 byte counts as
// one character.
class CharacterEdges {
 public:
  CharacterEdges() = default;
  explicit CharacterEdges(std::string_view text);
  std::int64_t characters() const { return characters_; }
  std::size_t operator[](std::int64_t i) const { return edges_.empty() ? i : edges_[i]; }

 private:
  std::int64_t characters_ = 0;
  // Empty for ASCII.
  std::vector<std::uint32_t, CountedAllocator<std::uint32_t>> edges_;
};
std::size_t CountCharacters(std::string_view text);

}  // namespace thermocline::text::jinja
