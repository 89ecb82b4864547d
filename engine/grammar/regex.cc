#include "engine/grammar/regex.h"

#include <re2/re2.h>

#include <optional>
#include <utility>

#include "engine/grammar/scanner.h"

namespace thermocline::grammar {
namespace {

constexpr int kGroupsMax = 200;  // nested groups
constexpr std::size_t kShownBytes = 200;

CodePointSet Digits() { return {{'0', '9'}}; }
CodePointSet Words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePointSet Spaces() { return {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}; }
// \S excludes every character that any dialect treats as a space.
CodePointSet NoSpaces() {
  return Complement({{'\t', '\r'},
                     {0x1C, 0x20},
                     {0x85, 0x85},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000},
                     {0xFEFF, 0xFEFF}});
}

// Converts ECMAScript's spellings in the pattern to RE2's.
std::string ForRe2(const std::string& pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      if (pattern[i + 1] == 'u' && i + 5 < pattern.size() && pattern[i + 2] != '{') {
        out += "\\x{" + pattern.substr(i + 2, 4) + "}";
        i += 5;
        continue;
      }
      out += pattern.substr(i++, 2);
      continue;
    }
    const bool named = pattern.compare(i, 3, "(?<") == 0 && i + 3 < pattern.size() &&
                       pattern[i + 3] != '=' && pattern[i + 3] != '!';
    out += named ? "(?P" : pattern.substr(i, 1);
    if (named) ++i;
  }
  return out;
}

class RegexParser {
 public:
  explicit RegexParser(const std::string& pattern) : in_("the pattern", pattern) {}

  Result<Expression> Run() {
    ASSIGN_OR_RETURN(Expression out, ParseChoice(0));
    if (!in_.done()) return in_.Fail("')' has no '('");
    return out;
  }

 private:
  template <typename... Pieces>
  Status Unsupported(const Pieces&... pieces) const {
    return base::Unimplemented(in_.Fail(pieces..., " is not supported").message());
  }

  Result<Expression> ParseChoice(int depth) {
    if (depth > kGroupsMax) return in_.Fail("more than ", kGroupsMax, " groups inside each other");
    std::vector<Expression> choices;
    do {
      std::vector<Expression> parts;
      while (!in_.done() && in_.Peek() != '|' && in_.Peek() != ')') {
        ASSIGN_OR_RETURN(Expression part, ParsePart(depth));
        ASSIGN_OR_RETURN(part, ParseRepeat(std::move(part)));
        parts.push_back(std::move(part));
      }
      choices.push_back(SequenceOf(std::move(parts)));
    } while (in_.Take("|"));
    return ChoiceOf(std::move(choices));
  }

  Result<Expression> ParsePart(int depth) {
    if (in_.Take("(")) return ParseGroup(depth);
    if (in_.Take("[")) return ParseClass();
    if (in_.Take("^")) return EdgeOf(Edge::Kind::kBegin);
    if (in_.Take("$")) return EdgeOf(Edge::Kind::kEnd);
    if (in_.Take(".")) return SetOf(Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (in_.Peek() == '\\') return ParseEscape();
    std::string text;
    base::AppendUtf8(text, in_.TakeCharacter());
    return TextOf(std::move(text));
  }

  Result<Expression> ParseGroup(int depth) {
    if (in_.Take("?")) {
      if (in_.Take("P<") || in_.Take("<")) {
        while (!in_.done() && !in_.Take(">")) in_.TakeCharacter();
      } else if (!in_.Take(":")) {
        return Unsupported("a group with flags, '(?", std::string(1, in_.Peek()), "',");
      }
    }
    ASSIGN_OR_RETURN(Expression inner, ParseChoice(depth + 1));
    if (!in_.Take(")")) return in_.Fail("')' is expected");
    return inner;
  }

  Result<Expression> ParseRepeat(Expression part) {
    while (true) {
      int min = 0, max = Expression::kNoMax;
      const std::size_t begin = in_.at();
      if (in_.Take("+")) {
        min = 1;
      } else if (in_.Take("?")) {
        max = 1;
      } else if (!in_.Take("*")) {
        if (!TakeCounts(min, max)) {
          in_.MoveTo(begin);
          return part;
        }
      }
      in_.Take("?");  // lazy: the same texts
      const bool edge = part.kind == Expression::Kind::kEdge;
      if (edge) return Unsupported("a repeated ^ or $");
      part = RepeatOf(std::move(part), min, max);
    }
  }

  // {m}, {m,} or {m,n}; other text is literal.
  bool TakeCounts(int& min, int& max) {
    if (!in_.Take("{")) return false;
    const auto from = in_.TakeNumber(kRepeatMax);
    if (!from.has_value()) return false;
    min = max = *from;
    if (in_.Take(",")) {
      max = Expression::kNoMax;
      if (in_.Peek() != '}') {
        const auto to = in_.TakeNumber(kRepeatMax);
        if (!to.has_value() || *to < min) return false;
        max = *to;
      }
    }
    return in_.Take("}");
  }

  // \d and similar classes; nullopt: not a class.
  std::optional<CodePointSet> TakeClassEscape() {
    if (in_.Take("\\d")) return Digits();
    if (in_.Take("\\D")) return Complement(Digits());
    if (in_.Take("\\w")) return Words();
    if (in_.Take("\\W")) return Complement(Words());
    if (in_.Take("\\s")) return Spaces();
    if (in_.Take("\\S")) return NoSpaces();
    return std::nullopt;
  }

  Result<Expression> ParseEscape() {
    if (auto set = TakeClassEscape()) return SetOf(*std::move(set));
    if (in_.Take("\\A")) return EdgeOf(Edge::Kind::kBegin);
    if (in_.Take("\\z")) return EdgeOf(Edge::Kind::kEnd);
    std::string text;
    ASSIGN_OR_RETURN(const char32_t character, ParseEscapedCharacter());
    base::AppendUtf8(text, character);
    return TextOf(std::move(text));
  }

  Result<char32_t> TakeSurrogates(char32_t high) {
    if (high < 0xD800 || high >= 0xE000) return high;
    const bool pair = high < 0xDC00 && in_.Take("\\u");
    const auto low = pair ? in_.TakeHex(4) : std::nullopt;
    if (!low.has_value() || *low < 0xDC00 || *low >= 0xE000)
      return in_.Fail("half of a surrogate pair is no character");
    return 0x10000 + ((high - 0xD800) << 10) + (*low - 0xDC00);
  }

  Result<char32_t> ParseEscapedCharacter() {
    in_.Take("\\");
    static constexpr std::pair<char, char32_t> kEscapes[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                             {'f', '\f'}, {'v', '\v'}, {'a', 7}};
    for (const auto& [letter, character] : kEscapes)
      if (in_.Take(std::string_view(&letter, 1))) return character;
    if (in_.Take("u")) {
      const auto value = in_.TakeHex(4);
      if (!value.has_value()) return in_.Fail("\\u wants four hexadecimal digits");
      return TakeSurrogates(*value);
    }
    if (in_.Take("x{")) {
      char32_t value = 0;
      while (const auto digit = in_.TakeHex(1)) value = value * 16 + *digit;
      if (!in_.Take("}") || value > kCodePointMax) return in_.Fail("\\x{...} is no character");
      return value;
    }
    if (in_.Take("x")) {
      const auto value = in_.TakeHex(2);
      if (!value.has_value()) return in_.Fail("\\x wants two hexadecimal digits");
      return *value;
    }
    const char c = in_.Peek();
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) return Unsupported("'\\", std::string(1, c), "'");
    if (in_.done()) return in_.Fail("the pattern ends with a backslash");
    return in_.TakeCharacter();
  }

  Result<Expression> ParseClass() {
    const bool negated = in_.Take("^");
    CodePointSet set;
    for (bool first = true; first || in_.Peek() != ']'; first = false) {
      if (in_.done()) return in_.Fail("']' is expected");
      if (in_.Peek() == '[' && in_.Peek(1) == ':') return Unsupported("a class like [:alpha:]");
      if (auto inner = TakeClassEscape()) {
        set.insert(set.end(), inner->begin(), inner->end());
        continue;
      }
      ASSIGN_OR_RETURN(const char32_t lo, ParseClassCharacter());
      char32_t hi = lo;
      if (in_.Peek() == '-' && in_.Peek(1) != ']' && in_.Peek(1) != '\0') {
        in_.Take("-");
        ASSIGN_OR_RETURN(hi, ParseClassCharacter());
      }
      if (hi < lo) return in_.Fail("a range of characters that ends before it begins");
      set.push_back({lo, hi});
    }
    in_.Take("]");
    return SetOf(negated ? Complement(set) : Normalized(std::move(set)));
  }

  Result<char32_t> ParseClassCharacter() {
    if (in_.Take("\\b")) return U'\b';
    if (in_.Peek() == '\\') return ParseEscapedCharacter();
    return in_.TakeCharacter();
  }

  Scanner in_;
};

}  // namespace

Result<Expression> ParseRegex(const std::string& pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 checked(ForRe2(pattern), options);
  if (!checked.ok())
    return base::InvalidArgument("the pattern '", base::Shorten(pattern, kShownBytes),
                                 "' is refused: ", checked.error(),
                                 " (patterns are RE2's: no look-around, no back-references)");
  return RegexParser(pattern).Run();
}

}  // namespace thermocline::grammar
