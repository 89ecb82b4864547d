#include "server/chat/python_literals.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>

#include "engine/base/bytes.h"
#include "engine/base/strings.h"
#include "server/chat/tool_match.h"

namespace thermocline::chat {
namespace {

constexpr int kLiteralDepthMax = 64;
constexpr std::size_t kLiteralKeysMax = 1024;

bool IsIdentifierByte(char c) { return std::isalnum(base::ByteOf(c)) != 0 || c == '_'; }

// Parses one literal, and those inside it.
class LiteralReader {
 public:
  explicit LiteralReader(CallCursor& cursor) : cursor_(cursor) {}

  Taken Value(Json& out, int depth) {
    if (depth > kLiteralDepthMax) return Taken::kNo;
    cursor_.SkipSpace();
    if (cursor_.at_end()) return cursor_.Missing();
    switch (cursor_.Peek()) {
      case '"':
      case '\'':
        return String(out);
      case '[':
        return List(']', out, depth);
      case '(':
        return List(')', out, depth);
      case '{':
        return Dictionary(out, depth);
      default:
        return Word(out);
    }
  }

  Taken String(Json& out) {
    const std::string_view rest = cursor_.Rest();
    const std::string three(3, rest[0]);
    // Two quotes may be an empty string or the start of a longer mark.
    if (rest.size() < three.size() && three.starts_with(rest) && cursor_.Missing() == Taken::kMore)
      return Taken::kMore;
    const std::string mark = rest.starts_with(three) ? three : three.substr(0, 1);
    std::string text;
    for (std::size_t i = mark.size(); i < rest.size();) {
      if (rest.substr(i).starts_with(mark)) {
        cursor_.Skip(i + mark.size());
        out = std::move(text);
        return Taken::kDone;
      }
      if (rest[i] != '\\') {
        text.push_back(rest[i++]);
      } else if (!Escape(rest, i, text)) {
        return cursor_.Missing();
      }
    }
    return cursor_.Missing();
  }

 private:
  // Takes an escape at `i`; false if the text ends within it.
  static bool Escape(std::string_view rest, std::size_t& i, std::string& text) {
    if (i + 1 >= rest.size()) return false;
    const char c = rest[i + 1];
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (i + 2 + digits > rest.size()) return false;
    const std::string_view hex = rest.substr(i + 2, digits);
    std::uint32_t code = 0;
    const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    const bool whole =
        digits > 0 && parsed.ec == std::errc() && parsed.ptr == hex.data() + hex.size();
    i += 2 + (whole ? digits : 0);
    if (whole) {
      base::AppendUtf8(text, code);
      return true;
    }
    constexpr std::string_view kFrom = "ntrbf0\\'\"/", kTo("\n\t\r\b\f\0\\'\"/", 10);
    const std::size_t known = kFrom.find(c);
    if (c == '\n') return true;  // a line that continues
    if (known == kNowhere) text.push_back('\\');
    text.push_back(known == kNowhere ? c : kTo[known]);
    return true;
  }

  // Takes what stands between two elements: kDone with `more` false at the closing bracket.
  Taken Separator(char close, bool& more) {
    cursor_.SkipSpace();
    more = false;
    if (cursor_.at_end()) return cursor_.closes() ? Taken::kDone : cursor_.Missing();
    const char c = cursor_.Peek();
    if (c != ',' && c != close) return Taken::kNo;
    cursor_.Skip(1);
    more = c == ',';
    return Taken::kDone;
  }

  // True at the closing bracket, which it takes, and where the answer's end replaces it.
  bool Closes(char close) {
    cursor_.SkipSpace();
    if (cursor_.at_end()) return cursor_.closes();
    if (cursor_.Peek() != close) return false;
    cursor_.Skip(1);
    return true;
  }

  Taken List(char close, Json& out, int depth) {
    cursor_.Skip(1);
    Json::Array items;
    for (bool more = true; more && !Closes(close);) {
      Json item;
      Taken taken = Value(item, depth + 1);
      if (taken == Taken::kDone) taken = Separator(close, more);
      if (taken != Taken::kDone) return taken;
      items.push_back(std::move(item));
    }
    out = std::move(items);
    return Taken::kDone;
  }

  Taken Dictionary(Json& out, int depth) {
    cursor_.Skip(1);
    out = Json::Object{};
    for (bool more = true; more && !Closes('}');) {
      Json key, value;
      cursor_.SkipSpace();
      if (cursor_.at_end()) return cursor_.Missing();
      if (cursor_.Peek() != '"' && cursor_.Peek() != '\'') return Taken::kNo;
      Taken taken = String(key);
      if (taken == Taken::kDone) {
        cursor_.SkipSpace();
        taken = cursor_.Take(":");
      }
      if (taken == Taken::kDone) taken = Value(value, depth + 1);
      if (taken == Taken::kDone) taken = Separator('}', more);
      if (taken != Taken::kDone) return taken;
      if (out.as_object().size() >= kLiteralKeysMax) return Taken::kNo;
      out.Set(key.as_string(), std::move(value));
    }
    return Taken::kDone;
  }

  Taken Word(Json& out) {
    const std::string_view rest = cursor_.Rest();
    const std::size_t end = std::min(
        rest.find_first_not_of("+-.0123456789abcdefghijklmnopqrstuvwxyzEFNT"), rest.size());
    if (end == rest.size() && cursor_.Missing() == Taken::kMore) return Taken::kMore;
    const std::string_view word = rest.substr(0, end);
    cursor_.Skip(end);
    if (word == "True" || word == "False") {
      out = word == "True";
    } else if (word == "None") {
      out = nullptr;
    } else {
      auto parsed = base::ParseJson(word);
      if (!parsed.ok()) return Taken::kNo;
      out = *std::move(parsed);
    }
    return Taken::kDone;
  }

  CallCursor& cursor_;
};

// Takes "NAME =" before an argument; `name` stays empty if the argument has none.
Taken TakeKeyword(CallCursor& cursor, std::string& name) {
  cursor.SkipSpace();
  const std::string_view rest = cursor.Rest();
  const auto end = std::find_if_not(rest.begin(), rest.end(), IsIdentifierByte);
  const std::size_t size = end - rest.begin();
  const std::size_t next = rest.find_first_not_of(kBlank, size);
  if (size > 0 && next == kNowhere && cursor.Missing() == Taken::kMore) return Taken::kMore;
  if (size == 0 || next == kNowhere || rest[next] != '=') return Taken::kDone;
  if (rest.substr(next).starts_with("==")) return Taken::kNo;
  name.assign(rest.begin(), end);
  cursor.Skip(next + 1);
  return Taken::kDone;
}

// Adds an argument without a name to `out`.
Taken AddPositional(const Tool& tool, Json value, Json& out) {
  if (!out.as_object().empty()) return Taken::kNo;
  if (value.is_object() && FitsSchema(tool, value)) {
    out = std::move(value);
    return Taken::kDone;
  }
  const std::string only = OnlyParameter(tool);
  if (only.empty()) return Taken::kNo;
  out.Set(only, std::move(value));
  return Taken::kDone;
}

}  // namespace

Taken TakePythonLiteral(CallCursor& cursor, Json& out) {
  return LiteralReader(cursor).Value(out, 0);
}

Taken TakePythonArguments(CallCursor& cursor, const Tool& tool, Json& out) {
  out = Json::Object{};
  while (true) {
    cursor.SkipSpace();
    if (cursor.at_end() && cursor.closes()) return Taken::kDone;
    if (cursor.at_end()) return cursor.Missing();
    if (cursor.Peek() == ')') break;
    std::string name;
    Json value;
    Taken taken = TakeKeyword(cursor, name);
    if (taken == Taken::kDone) taken = TakePythonLiteral(cursor, value);
    if (taken != Taken::kDone) return taken;
    if (name.empty()) {
      if (AddPositional(tool, std::move(value), out) != Taken::kDone) return Taken::kNo;
    } else if (out.FindRaw(name) != nullptr || out.as_object().size() >= kLiteralKeysMax) {
      return Taken::kNo;
    } else {
      out.Set(name, std::move(value));
    }
    cursor.SkipSpace();
    if (!cursor.at_end() && cursor.Peek() != ',' && cursor.Peek() != ')') return Taken::kNo;
    if (!cursor.at_end() && cursor.Peek() == ',') cursor.Skip(1);
  }
  cursor.Skip(1);
  return Taken::kDone;
}

}  // namespace thermocline::chat
