#include "server/chat/call_parser.h"

#include <algorithm>
#include <cctype>
#include <random>

#include "engine/base/strings.h"

namespace thermocline::chat {
namespace {

using Part = MessagePart::Kind;
constexpr std::string_view kIdAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

bool IsWordByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Without the backslashes of a text between quotes.
std::string Unquoted(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    out.push_back(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
  }
  return out;
}

// The first unescaped `quote`, or npos.
std::size_t EndOfQuoted(const std::string& text, char quote) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i;
    }
  }
  return kNowhere;
}

}  // namespace

std::string NewCallId(bool of_nine) {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id = of_nine ? "" : "call_";
  for (int i = 0; i < (of_nine ? 9 : 24); ++i)
    id.push_back(kIdAlphabet[generator() % kIdAlphabet.size()]);
  return id;
}

CallParser::Outcome CallParser::Push(std::string& text, std::vector<MessagePart>& out) {
  const CallFormat& format = format_.calls;
  while (true) {
    const CallPieces& pieces = further_ ? format.next : format.first;
    if (piece_ < pieces.size()) {
      const Outcome outcome = TakePiece(pieces[piece_], text, out);
      if (outcome != Outcome::kEnded) return outcome;
      ++piece_;
      continue;
    }
    // Between two calls: another one, or the end.
    if (named_) {
      named_ = announced_ = false;
      id_.clear();
    }
    const auto begins = [&text](const std::string& with) {
      return text.compare(0, std::min(text.size(), with.size()), with, 0,
                          std::min(text.size(), with.size())) == 0;
    };
    const std::string lead = format.next.empty() || format.next[0].kind != CallPiece::Kind::kText
                                 ? ""
                                 : format.next[0].text;
    if (!lead.empty() && begins(lead)) {
      if (text.size() < lead.size()) return Outcome::kMore;
      further_ = true;
      piece_ = 0;
      continue;
    }
    if (!format.end.empty() && begins(format.end)) {
      if (text.size() < format.end.size()) return Outcome::kMore;
      text.erase(0, format.end.size());
      return Outcome::kEnded;
    }
    if (text.empty() && !(lead.empty() && format.end.empty())) return Outcome::kMore;
    return Outcome::kEnded;
  }
}

CallParser::Outcome CallParser::TakePiece(const CallPiece& piece, std::string& text,
                                          std::vector<MessagePart>& out) {
  std::string word;
  switch (piece.kind) {
    case CallPiece::Kind::kText:
      return TakeLiteral(piece.text, text);
    case CallPiece::Kind::kIndex:
      return TakeWord(word, text);
    case CallPiece::Kind::kId:
      return TakeWord(id_, text);
    case CallPiece::Kind::kName: {
      const Outcome outcome = TakeWord(name_, text);
      if (outcome != Outcome::kEnded) return outcome;
      named_ = true;
      return outcome;
    }
    case CallPiece::Kind::kArguments:
      break;
  }
  // An id behind the arguments comes too late for a stream: there it is ours.
  if (!Announce(out)) return Outcome::kLost;
  return format_.calls.tagged.has_value() ? TakeTagged(text, out) : TakeJson(text, out);
}

CallParser::Outcome CallParser::TakeLiteral(const std::string& literal, std::string& text) {
  const std::size_t size = std::min(literal.size(), text.size());
  if (text.compare(0, size, literal, 0, size) != 0) return Outcome::kLost;
  if (size < literal.size()) return Outcome::kMore;
  text.erase(0, literal.size());
  return Outcome::kEnded;
}

CallParser::Outcome CallParser::TakeWord(std::string& word, std::string& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), IsWordByte);
  if (end == text.end()) return Outcome::kMore;
  word.assign(text.begin(), end);
  text.erase(text.begin(), end);
  return word.empty() ? Outcome::kLost : Outcome::kEnded;
}

bool CallParser::Announce(std::vector<MessagePart>& out) {
  if (announced_) return true;
  if (!named_) return false;
  BeginCall(name_, out);
  return true;
}

void CallParser::BeginCall(const std::string& name, std::vector<MessagePart>& out) {
  announced_ = named_ = true;
  name_ = name;
  in_json_ = any_argument_ = false;
  argument_ = Argument::kFirst;
  out.push_back({.kind = Part::kCallBegin,
                 .call = count_++,
                 .id = id_.empty() ? NewCallId(format_.ids_of_nine) : id_,
                 .name = name});
}

void CallParser::AddArguments(std::string text, std::vector<MessagePart>& out) {
  if (text.empty()) return;
  out.push_back({.kind = Part::kCallArguments, .text = std::move(text), .call = count_ - 1});
}

CallParser::Outcome CallParser::TakeJson(std::string& text, std::vector<MessagePart>& out) {
  if (!in_json_) {
    if (text.empty()) return Outcome::kMore;
    if (text[0] != '{') return Outcome::kLost;
    scan_ = {};
    in_json_ = true;
  }
  std::size_t end = 0;
  bool ended = false;
  while (end < text.size() && !ended) ended = scan_.Push(text[end++]);
  AddArguments(text.substr(0, end), out);
  text.erase(0, end);
  return ended ? Outcome::kEnded : Outcome::kMore;
}

// One step for each key, and one for each value.
CallParser::Outcome CallParser::TakeTagged(std::string& text, std::vector<MessagePart>& out) {
  const TaggedArguments& tagged = *format_.calls.tagged;
  while (true) {
    if (argument_ == Argument::kFirst) {
      const Outcome none = tagged.empty.empty() ? Outcome::kLost : TakeLiteral(tagged.empty, text);
      if (none == Outcome::kEnded) AddArguments("{}", out);
      if (none != Outcome::kLost) return none;
      const Outcome first = TakeLiteral(tagged.open, text);
      if (first == Outcome::kLost && tagged.empty.empty()) {
        AddArguments("{}", out);
        return Outcome::kEnded;
      }
      if (first != Outcome::kEnded) return first;
      argument_ = Argument::kKey;
    }
    if (argument_ == Argument::kKey) {
      const Outcome key = TakeWord(key_, text);
      if (key != Outcome::kEnded) return key;
      argument_ = Argument::kValue;
    }
    // Where strings and other values look alike, the schema tells which it is.
    bool as_text = tagged.text.open.size() >= tagged.other.open.size();
    const ValueMarks* marks = as_text ? &tagged.text : &tagged.other;
    for (int attempt = 0;; ++attempt) {
      const std::size_t size = std::min(marks->open.size(), text.size());
      const bool fits = text.compare(0, size, marks->open, 0, size) == 0;
      if (fits && size < marks->open.size()) return Outcome::kMore;
      if (fits) break;
      if (attempt == 1) return Outcome::kLost;
      as_text = !as_text;
      marks = as_text ? &tagged.text : &tagged.other;
    }
    const std::string rest = text.substr(marks->open.size());
    // What ends a value may stand within it, where that is quoted or between brackets.
    std::size_t inner = 0;
    if (as_text && tagged.quote != '\0') {
      inner = EndOfQuoted(rest, tagged.quote);
    } else if (!as_text && (rest.starts_with('{') || rest.starts_with('['))) {
      inner = EndOfJson(rest, 0);
    }
    if (inner == kNowhere) return Outcome::kMore;
    const std::size_t next = marks->next.empty() ? kNowhere : rest.find(marks->next, inner),
                      close = rest.find(marks->close, inner);
    const std::size_t end = std::min(next, close);
    if (end == kNowhere) return Outcome::kMore;
    // The longer of two that begin at one place wins, as soon as it can be told.
    const std::string& longer =
        marks->next.size() > marks->close.size() ? marks->next : marks->close;
    const std::size_t there = std::min(longer.size(), rest.size() - end);
    const bool maybe_longer = rest.compare(end, there, longer, 0, there) == 0;
    if (maybe_longer && there < longer.size()) return Outcome::kMore;
    const bool goes_on = maybe_longer ? &longer == &marks->next : next == end;
    std::string raw = rest.substr(0, end);
    if (as_text && tagged.quote != '\0') raw = Unquoted(raw);
    std::string json;
    base::AppendJsonString(json, key_);
    AddArguments(StrCat(any_argument_ ? ", " : "{", json, ": ", ValueJson(key_, raw, as_text),
                        goes_on ? "" : "}"),
                 out);
    any_argument_ = true;
    text = rest.substr(end + (goes_on ? marks->next : marks->close).size());
    argument_ = Argument::kKey;
    if (!goes_on) return Outcome::kEnded;
  }
}

// `as_text`: it stands where strings stand; but those may look as everything else does.
std::string CallParser::ValueJson(const std::string& key, const std::string& raw,
                                  bool as_text) const {
  const TaggedArguments& tagged = *format_.calls.tagged;
  const bool told_apart = tagged.text.open != tagged.other.open;
  const auto tool = std::find_if(tools_.begin(), tools_.end(),
                                 [this](const Tool& each) { return each.name == name_; });
  const std::string type = tool == tools_.end() ? "" : TypeOfParameter(tool->parameters, key);
  const bool is_text = told_apart ? as_text : type == "string";
  if (!is_text) {
    const auto json = base::ParseJson(raw);
    if (json.ok()) return json->Dump();
    if (raw == "True" || raw == "False") return raw == "True" ? "true" : "false";
    if (raw == "None") return "null";
  }
  constexpr std::string_view kOpen = "<![CDATA[", kClose = "]]>";
  const bool wrapped = raw.starts_with(kOpen) && raw.ends_with(kClose);
  std::string out;
  base::AppendJsonString(
      out, wrapped ? raw.substr(kOpen.size(), raw.size() - kOpen.size() - kClose.size()) : raw);
  return out;
}

}  // namespace thermocline::chat
