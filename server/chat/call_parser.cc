#include "server/chat/call_parser.h"

#include <algorithm>
#include <cctype>

#include "engine/base/bytes.h"
#include "engine/base/random.h"
#include "engine/base/strings.h"
#include "server/chat/argument_forms.h"
#include "server/chat/quoted_text.h"

namespace thermocline::chat {
namespace {

// Some templates wrap strings that contain marks in these XML marks.
constexpr std::string_view kCdataOpen = "<![CDATA[", kCdataClose = "]]>";

using Part = MessagePart::Kind;
constexpr std::size_t kKeyBytesMax = 1024;

bool IsWordByte(char c) {
  return std::isalnum(base::ByteOf(c)) != 0 || c == '_' || c == '-' || c == '.';
}

}  // namespace

std::string NewCallId(bool of_nine) {
  return of_nine ? base::RandomLetters(9) : "call_" + base::RandomLetters(24);
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
    // Between two calls, another call or the end may follow.
    if (named_) id_.clear();
    named_ = announced_ = false;
    const auto begins = [&text](const std::string& with) {
      return with.starts_with(std::string_view(text).substr(0, with.size()));
    };
    const std::string lead = format.next.empty() || format.next[0].kind != CallPiece::Kind::kText
                                 ? ""
                                 : format.next[0].text;
    if (!lead.empty() && begins(lead)) {
      if (text.size() < lead.size()) return Outcome::kMore;
      further_ = true;
      piece_ = 0;
      taken_.clear();
      continue;
    }
    if (!format.end.empty() && begins(format.end)) {
      if (text.size() < format.end.size()) return Outcome::kMore;
      text.erase(0, format.end.size());
      return Outcome::kEnded;
    }
    const bool more = text.empty() && !(lead.empty() && format.end.empty());
    return more ? Outcome::kMore : Outcome::kEnded;
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
  const Outcome begins = announced_ ? Outcome::kEnded : BeginsArguments(text);
  if (begins != Outcome::kEnded) return begins;
  // An id after the arguments is too late for a stream, so such a call gets our id.
  if (!Announce(out)) return Outcome::kLost;
  return format_.calls.tagged.has_value() ? TakeTagged(text, out) : TakeJson(text, out);
}

// kEnded: `text` begins arguments in the format, or the text behind them, so the call can be
// announced.
CallParser::Outcome CallParser::BeginsArguments(const std::string& text) const {
  const CallPieces& pieces = further_ ? format_.calls.next : format_.calls.first;
  const auto& tagged = format_.calls.tagged;
  const std::string open = tagged.has_value() ? tagged->open : "{";
  std::string none = tagged.has_value() ? tagged->empty : open;
  if (none.empty()) none = piece_ + 1 < pieces.size() ? pieces[piece_ + 1].text : "";
  if (none.empty() || text.starts_with(open) || text.starts_with(none)) return Outcome::kEnded;
  return open.starts_with(text) || none.starts_with(text) ? Outcome::kMore : Outcome::kLost;
}

CallParser::Outcome CallParser::TakeLiteral(const std::string& literal, std::string& text) {
  const std::size_t size = std::min(literal.size(), text.size());
  if (text.compare(0, size, literal, 0, size) != 0) return Outcome::kLost;
  if (size < literal.size()) return Outcome::kMore;
  text.erase(0, literal.size());
  taken_ += literal;
  return Outcome::kEnded;
}

CallParser::Outcome CallParser::TakeWord(std::string& word, std::string& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), IsWordByte);
  constexpr std::size_t kWordMost = 1024;  // bytes: it is looked at anew with each token
  if (end == text.end()) return text.size() > kWordMost ? Outcome::kLost : Outcome::kMore;
  word.assign(text.begin(), end);
  text.erase(text.begin(), end);
  taken_ += word;
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
  scan_ = {};
  taken_.clear();
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
  in_json_ = true;
  std::size_t end = 0;
  bool ended = false;
  while (end < text.size() && !ended) ended = scan_.Push(text[end++]);
  AddArguments(text.substr(0, end), out);
  text.erase(0, end);
  return ended ? Outcome::kEnded : Outcome::kMore;
}

// One step per key, per mark before a value, and per value.
CallParser::Outcome CallParser::TakeTagged(std::string& text, std::vector<MessagePart>& out) {
  while (true) {
    Outcome outcome = Outcome::kLost;
    const Argument before = argument_;
    switch (argument_) {
      case Argument::kFirst:
      case Argument::kKey:
        outcome = TakeKey(text, out);
        break;
      case Argument::kOpen:
        outcome = TakeOpen(text, out);
        break;
      case Argument::kWhole:
        outcome = TakeWhole(text, out);
        break;
      case Argument::kString:
        outcome = TakeString(text, out);
    }
    if (outcome != Outcome::kMore || argument_ == before) return outcome;
  }
}

CallParser::Outcome CallParser::TakeKey(std::string& text, std::vector<MessagePart>& out) {
  const TaggedArguments& tagged = *format_.calls.tagged;
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
    return Outcome::kMore;
  }
  // A key may contain spaces: it ends at the mark before its value.
  const std::size_t end = std::min(text.find(tagged.text.open), text.find(tagged.other.open));
  if (end == 0 || (end == kNowhere && text.size() > kKeyBytesMax)) return Outcome::kLost;
  if (end == kNowhere) return Outcome::kMore;
  key_ = text.substr(0, end);
  if (key_.size() > 2 && key_.front() == '"' && key_.back() == '"') {  // as in JSON
    key_ = key_.substr(1, key_.size() - 2);
    tolerated_ = true;
  }
  text.erase(0, end);
  argument_ = Argument::kOpen;
  return Outcome::kMore;
}

const ValueMarks& CallParser::marks() const {
  const TaggedArguments& tagged = *format_.calls.tagged;
  return as_text_ ? tagged.text : tagged.other;
}

// The longer matching mark decides the type of the value.
CallParser::Outcome CallParser::TakeOpen(std::string& text, std::vector<MessagePart>& out) {
  const TaggedArguments& tagged = *format_.calls.tagged;
  as_text_ = tagged.text.open.size() >= tagged.other.open.size();
  for (int attempt = 0;; ++attempt) {
    const std::string& open = marks().open;
    const std::size_t size = std::min(open.size(), text.size());
    const bool fits = text.compare(0, size, open, 0, size) == 0;
    if (fits && size < open.size()) return Outcome::kMore;
    if (fits) break;
    if (attempt == 1) return Outcome::kLost;
    as_text_ = !as_text_;
  }
  text.erase(0, marks().open.size());
  std::string json;
  base::AppendJsonString(json, key_);
  AddArguments(StrCat(any_argument_ ? ", " : "{", json, ": ", IsString() ? "\"" : ""), out);
  any_argument_ = true;
  argument_ = IsString() ? Argument::kString : Argument::kWhole;
  held_.clear();
  wrapped_.reset();
  scan_ = {};
  inner_ = searched_ = 0;
  return Outcome::kMore;
}

void CallParser::EndValue(bool continues, std::vector<MessagePart>& out) {
  if (!continues) AddArguments("}", out);
  argument_ = Argument::kKey;
}

// The end of a value: the nearer of the two marks. If both start at the same place, it is the
// longer one, once enough text has arrived to decide.
CallParser::ValueEnd CallParser::FindEnd(const std::string& text, std::size_t from) const {
  const std::string &next = marks().next, &close = marks().close;
  const std::size_t at =
      std::min(next.empty() ? kNowhere : text.find(next, from), text.find(close, from));
  if (at == kNowhere) return {};
  const bool next_is_longer = next.size() > close.size();
  const std::string& longer = next_is_longer ? next : close;
  const std::size_t there = std::min(longer.size(), text.size() - at);
  const bool maybe_longer = text.compare(at, there, longer, 0, there) == 0;
  if (maybe_longer && there < longer.size()) return {};
  const bool continues = maybe_longer ? next_is_longer : !next_is_longer && !next.empty();
  return {.at = at, .continues = continues};
}

// Takes a value whose text decides its type, as one piece.
CallParser::Outcome CallParser::TakeWhole(std::string& text, std::vector<MessagePart>& out) {
  // Marks inside brackets do not end the value. Bytes that were searched are not searched again.
  const bool brackets = text.starts_with('{') || text.starts_with('[');
  bool closed = !brackets || inner_ > 0;
  while (!closed && searched_ < text.size()) closed = scan_.Push(text[searched_++]);
  if (!closed) return Outcome::kMore;
  if (brackets && inner_ == 0) inner_ = searched_;
  const ValueEnd end = FindEnd(text, std::max(inner_, searched_));
  if (end.at == kNowhere) {
    const std::size_t mark = std::max(marks().next.size(), marks().close.size());
    searched_ = text.size() - std::min(text.size(), mark);
    return Outcome::kMore;
  }
  AddArguments(ValueJson(text.substr(0, end.at)), out);
  text.erase(0, end.at + (end.continues ? marks().next : marks().close).size());
  EndValue(end.continues, out);
  return end.continues ? Outcome::kMore : Outcome::kEnded;
}

// Takes a string as it arrives, except bytes that may turn out to be a mark.
CallParser::Outcome CallParser::TakeString(std::string& text, std::vector<MessagePart>& out) {
  const char quote = format_.calls.tagged->quote;
  const bool quoted = quote != '\0';
  const std::size_t inner = quoted ? EndOfQuoted(text, quote) : 0;
  const ValueEnd end = inner == kNowhere ? ValueEnd() : FindEnd(text, inner);
  if (end.at != kNowhere) {
    AddString(text.substr(0, end.at), true, out);
    AddArguments("\"", out);
    text.erase(0, end.at + (end.continues ? marks().next : marks().close).size());
    EndValue(end.continues, out);
    return end.continues ? Outcome::kMore : Outcome::kEnded;
  }
  std::size_t sure = std::min(inner, text.size());
  if (!quoted) sure = text.size() - OverlapOfMarks(text);
  // A character or escape is never split.
  if (quoted && (SlashesAtEnd(text.substr(0, sure)) % 2) != 0) --sure;
  sure -= base::IncompleteUtf8Suffix(std::string_view(text).substr(0, sure));
  AddString(text.substr(0, sure), false, out);
  text.erase(0, sure);
  return Outcome::kMore;
}

std::size_t CallParser::OverlapOfMarks(const std::string& text) const {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = std::string_view(text).substr(at);
    for (const std::string* mark : {&marks().next, &marks().close})
      if (!mark->empty() && mark->starts_with(rest.substr(0, mark->size()))) return rest.size();
  }
  return 0;
}

void CallParser::AddString(const std::string& raw, bool last, std::vector<MessagePart>& out) {
  const bool quoted = format_.calls.tagged->quote != '\0';
  const std::string piece = quoted ? Unquoted(raw) : Unwrapped(raw, last);
  if (piece.empty()) return;
  std::string json;
  base::AppendJsonString(json, piece);
  AddArguments(json.substr(1, json.size() - 2), out);
}

// Some templates wrap strings that contain marks in XML's <![CDATA[..]]>. Bytes that may be part of
// one of these marks are held back.
std::string CallParser::Unwrapped(const std::string& raw, bool last) {
  held_ += raw;
  if (!wrapped_.has_value()) {
    if (!last && kCdataOpen.starts_with(held_)) return "";
    wrapped_ = held_.starts_with(kCdataOpen);
    if (*wrapped_) held_.erase(0, kCdataOpen.size());
  }
  std::size_t sure = held_.size();
  if (*wrapped_ && last && held_.ends_with(kCdataClose)) sure -= kCdataClose.size();
  for (std::size_t size = std::min(kCdataClose.size(), sure); *wrapped_ && !last && size > 0;
       --size) {
    if (!kCdataClose.starts_with(std::string_view(held_).substr(held_.size() - size))) continue;
    sure -= size;
    break;
  }
  std::string out = held_.substr(0, sure);
  held_.erase(0, sure);
  return out;
}

void CallParser::Finish(const std::string& text, bool cut, std::vector<MessagePart>& out) {
  if (!announced_) return;
  tolerated_ = tolerated_ || !cut;
  if (!format_.calls.tagged.has_value()) {
    if (in_json_ && !cut) AddArguments(scan_.Closing(), out);
    return;
  }
  const std::string value = text.substr(0, EndOfCut(text));
  if (argument_ == Argument::kString) AddString(value, true, out);
  if (argument_ == Argument::kWhole) AddArguments(value, out);
}

// Returns the end of a value that a token limit cut off: before the part of its end mark that
// arrived.
std::size_t CallParser::EndOfCut(const std::string& text) const {
  const char quote = format_.calls.tagged->quote;
  const bool whole = argument_ == Argument::kWhole;
  std::size_t inner = 0;
  if (whole && (text.starts_with('{') || text.starts_with('['))) inner = EndOfJson(text, 0);
  if (!whole && quote != '\0') inner = EndOfQuoted(text, quote);
  if (inner == kNowhere) return text.size();  // inside the value
  std::size_t end = text.size() - OverlapOfMarks(text);
  for (const std::string* mark : {&marks().next, &marks().close})
    if (!mark->empty()) end = std::min(end, text.find(*mark, inner));
  return std::max(end, inner);
}

// If strings and other values have the same marks, the schema decides.
bool CallParser::IsString() const {
  const TaggedArguments& tagged = *format_.calls.tagged;
  if (tagged.text.open != tagged.other.open) return as_text_;
  const auto tool = std::find_if(tools_.begin(), tools_.end(),
                                 [this](const Tool& each) { return each.name == name_; });
  return tool != tools_.end() && TypeOfParameter(*tool, key_) == "string";
}

// The JSON of a value that is not a string; text that is not JSON becomes a string.
std::string CallParser::ValueJson(const std::string& raw) const {
  const auto json = base::ParseJson(raw);
  if (json.ok()) return json->Dump();
  if (raw == "True" || raw == "False") return raw == "True" ? "true" : "false";
  if (raw == "None") return "null";
  const bool wrapped = raw.starts_with(kCdataOpen) && raw.ends_with(kCdataClose);
  const std::size_t inner = raw.size() - kCdataOpen.size() - kCdataClose.size();
  std::string out;
  base::AppendJsonString(out, wrapped ? raw.substr(kCdataOpen.size(), inner) : raw);
  return out;
}

}  // namespace thermocline::chat
