#include "server/chat/call_learner.h"

#include <algorithm>
#include <cctype>

#include "engine/base/bytes.h"
#include "engine/base/strings.h"
#include "server/chat/json_scan.h"

namespace thermocline::chat {
namespace {

using Kind = CallPiece::Kind;

std::size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return end - a.begin();
}

std::size_t CommonSuffix(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  return end - a.rbegin();
}

// Returns `at`, moved back to the start of a marker ("<name>", "[NAME]") that it would cut.
std::size_t OutOfMarker(std::string_view text, std::size_t at) {
  for (const auto& [open, close] : {std::pair('<', '>'), {'[', ']'}}) {
    if (at == 0 || at >= text.size()) continue;
    const std::size_t begin = text.rfind(open, at - 1), end = text.rfind(close, at - 1);
    if (begin == kNowhere || (end != kNowhere && end > begin) || begin + 1 >= text.size()) continue;
    const char first = text[begin + 1];
    const bool marker = open == '<' || first == '/' || (first >= 'A' && first <= 'Z');
    if (marker && text.find(close, at) != kNowhere) return begin;
  }
  return at;
}

struct Span {
  std::size_t begin = kNowhere, end = kNowhere;
};

// Finds the probes' arguments in a text.
class ArgumentFinder {
 public:
  explicit ArgumentFinder(const std::optional<TaggedArguments>& tagged) : tagged_(tagged) {}

  // The first arguments from `at` on.
  Span Find(const std::string& text, std::size_t at) const {
    return tagged_.has_value() ? FindTagged(text, at) : FindJson(text, at);
  }

 private:
  static Span FindJson(const std::string& text, std::size_t at) {
    int tries = 256;  // a template may write braces without end
    for (std::size_t i = text.find('{', at); i != kNowhere && tries > 0;
         i = text.find('{', i + 1), --tries) {
      const std::size_t end = EndOfJson(text, i);
      if (end == kNowhere) continue;
      const auto json = base::ParseJson(text.substr(i, end - i));
      if (json.ok() && json->is_object() && json->Find(kProbeKeys[0]) != nullptr) return {i, end};
    }
    return {};
  }

  Span FindTagged(const std::string& text, std::size_t at) const {
    const TaggedArguments& t = *tagged_;
    const std::string key = StrCat(t.open, kProbeKeys[0], t.text.open, "argval");
    const std::size_t begin = text.find(key, at);
    if (begin == kNowhere) return {};
    const std::string both = StrCat(t.text.next, kProbeKeys[1], t.other.open, "7", t.other.close);
    for (const std::string& rest : {both, t.text.close}) {
      if (text.compare(begin + key.size(), rest.size(), rest) == 0)
        return {begin, begin + key.size() + rest.size()};
    }
    return {};
  }

  const std::optional<TaggedArguments>& tagged_;
};

// Cuts the text of calls into pieces.
class Cutter {
 public:
  Cutter(const std::string& text, const ArgumentFinder& finder) : text_(text), finder_(finder) {}

  // Returns the pieces, or none if not every call was found or a name occurs twice.
  CallPieces Run(int calls) {
    for (int i = 0; i < calls; ++i)
      if (!TakeCall(i)) return {};
    TakeText(text_.size());
    for (int i = 0; i < calls; ++i)
      if (text_.find(kProbeTools[i], behind_name_) != kNowhere) return {};
    return std::move(pieces_);
  }

 private:
  // Takes the text up to the end of the call's arguments, or of its name if that comes later.
  bool TakeCall(int index) {
    const std::string name = kProbeTools[index], id = kProbeIds[index];
    const std::size_t name_at = text_.find(name, at_);
    const Span arguments = finder_.Find(text_, at_);
    if (name_at == kNowhere || arguments.begin == kNowhere || name_at > arguments.begin)
      return false;
    TakeIdBefore(id, name_at);
    TakeText(name_at);
    Add(Kind::kName, name.size());
    behind_name_ = at_;
    TakeIdBefore(id, arguments.begin);
    TakeText(arguments.begin);
    Add(Kind::kArguments, arguments.end - arguments.begin);
    const std::size_t next = text_.find(kProbeTools[std::min(index + 1, 2)], at_);
    TakeIdBefore(id, std::min(next, text_.size()));
    return true;
  }
  void TakeIdBefore(const std::string& id, std::size_t end) {
    const std::size_t at = text_.find(id, at_);
    if (at == kNowhere || at >= end) return;
    TakeText(at);
    Add(Kind::kId, id.size());
  }
  void TakeText(std::size_t end) {
    if (end > at_) pieces_.push_back({Kind::kText, text_.substr(at_, end - at_)});
    at_ = std::max(at_, end);
  }
  void Add(Kind kind, std::size_t bytes) {
    pieces_.push_back({kind});
    at_ += bytes;
  }

  const std::string& text_;
  const ArgumentFinder& finder_;
  CallPieces pieces_;
  std::size_t at_ = 0, behind_name_ = 0;
};

// Removes the common start of two lists of pieces from both and returns it. Texts that differ in
// the middle are cut there.
CallPieces TakeCommon(CallPieces& a, CallPieces& b) {
  CallPieces common;
  while (!a.empty() && !b.empty() && a[0] == b[0]) {
    common.push_back(a[0]);
    a.erase(a.begin());
    b.erase(b.begin());
  }
  if (b.empty() || b[0].kind != Kind::kText) return common;
  const std::string mine = a.empty() || a[0].kind != Kind::kText ? "" : a[0].text;
  std::size_t same = CommonPrefix(mine, b[0].text);
  same = std::min(OutOfMarker(mine, same), OutOfMarker(b[0].text, same));
  if (same == 0) return common;
  common.push_back({Kind::kText, mine.substr(0, same)});
  for (CallPieces* list : {&a, &b}) {
    (*list)[0].text.erase(0, same);
    if ((*list)[0].text.empty()) list->erase(list->begin());
  }
  return common;
}

// Removes a literal end; false if the pieces do not end with it.
bool TakeEnd(CallPieces& pieces, const std::string& end) {
  if (end.empty()) return true;
  if (pieces.empty() || pieces.back().kind != Kind::kText || !pieces.back().text.ends_with(end))
    return false;
  pieces.back().text.resize(pieces.back().text.size() - end.size());
  if (pieces.back().text.empty()) pieces.pop_back();
  return true;
}

// Replaces a number that differs between the second and third call by a hole, if it increased.
bool FindIndex(CallPieces& second, const CallPieces& third) {
  if (second.size() != third.size()) return false;
  CallPieces out;
  for (std::size_t i = 0; i < second.size(); ++i) {
    if (second[i] == third[i]) {
      out.push_back(second[i]);
      continue;
    }
    const std::string &a = second[i].text, &b = third[i].text;
    const std::size_t at = CommonPrefix(a, b);
    const bool grew = at < a.size() && a.size() == b.size() && a[at] + 1 == b[at] &&
                      std::isdigit(base::ByteOf(a[at])) != 0 &&
                      a.substr(at + 1) == b.substr(at + 1);
    if (!grew) return false;
    if (at > 0) out.push_back({Kind::kText, a.substr(0, at)});
    out.push_back({Kind::kIndex});
    if (at + 1 < a.size()) out.push_back({Kind::kText, a.substr(at + 1)});
  }
  second = std::move(out);
  return true;
}

// The text after the name of the only call.
std::string BehindName(const std::string& text) {
  const std::size_t at = text.find(kProbeTools[0]);
  return at == kNowhere ? "" : text.substr(at + std::string_view(kProbeTools[0]).size());
}

// `text` between two words, each of which occurs once in it.
std::optional<std::string> Between(const std::string& text, const std::string& from,
                                   const std::string& to) {
  const std::size_t begin = text.find(from);
  if (begin == kNowhere) return std::nullopt;
  const std::size_t at = begin + from.size();
  const std::size_t end = to.empty() ? text.size() : text.find(to, at);
  if (end == kNowhere || text.find(from, at) != kNowhere) return std::nullopt;
  return text.substr(at, end - at);
}

std::optional<TaggedArguments> LearnTagged(const CallTexts& texts) {
  const std::string none = BehindName(texts.none), text = BehindName(texts.text),
                    other = BehindName(texts.other), mixed = BehindName(texts.mixed);
  const auto before = [](const std::string& in, const char* key) {
    const std::size_t at = in.find(key);
    return at == kNowhere ? std::string() : in.substr(0, at);
  };
  const auto text_open = Between(text, kProbeKeys[0], "argval"),
             text_close = Between(text, "argval", ""),
             text_next = Between(mixed, "argval", kProbeKeys[1]),
             other_open = Between(other, kProbeKeys[1], "7"), other_close = Between(other, "7", ""),
             other_next = Between(mixed, "7", kProbeKeys[2]);
  if (!text_open || !text_close || !text_next || !other_open || !other_close || !other_next ||
      before(text, kProbeKeys[0]) != before(other, kProbeKeys[1]) || none.empty())
    return std::nullopt;
  std::string open = before(text, kProbeKeys[0]), empty = none;
  std::size_t lead = CommonPrefix(open, empty);
  lead = std::min(OutOfMarker(open, lead), OutOfMarker(empty, lead));
  open.erase(0, lead);
  empty.erase(0, lead);
  std::size_t trail = std::min(CommonSuffix(*text_close, empty), CommonSuffix(*other_close, empty));
  // The end of the last value must stay recognizable.
  trail = std::min({trail, std::max(text_close->size(), std::size_t{1}) - 1,
                    std::max(other_close->size(), std::size_t{1}) - 1});
  const auto shortened = [trail](std::string from) {
    from.resize(from.size() - trail);
    return from;
  };
  TaggedArguments out{.open = open,
                      .empty = shortened(empty),
                      .text = {*text_open, *text_next, shortened(*text_close)},
                      .other = {*other_open, *other_next, shortened(*other_close)}};
  const char mark = out.text.open.empty() ? '\0' : out.text.open.back();
  const bool quoted = (mark == '\'' || mark == '"') && !out.other.open.ends_with(mark) &&
                      out.text.next.starts_with(mark) && out.text.close.starts_with(mark);
  if (quoted) out.quote = mark;
  const bool keys_twice = out.text.close.find(kProbeKeys[0]) != kNowhere;
  if (out.TextEnd().empty() || keys_twice) return std::nullopt;
  return out;
}

bool IsWordCharacter(char c) { return std::isalnum(base::ByteOf(c)) != 0; }

// Finds the text that starts a call: a marker, or the first key of an object.
bool FindTrigger(CallFormat& format) {
  const std::string lead = format.first[0].kind == Kind::kText ? format.first[0].text : "";
  if (lead.empty() || IsWordCharacter(lead[0])) return false;
  const std::size_t key = lead.find('"');
  const bool json = lead[0] == '{' || (lead[0] == '[' && key != kNowhere &&
                                       lead.substr(0, key).find_first_not_of("[{ \n") == kNowhere);
  if (json) {
    const std::size_t end = key == kNowhere ? kNowhere : lead.find('"', key + 1);
    format.at_start = true;
    format.trigger = end == kNowhere ? lead : lead.substr(0, end + 1);
    return key != kNowhere;
  }
  const std::size_t close = lead.find_first_of(">]");
  format.trigger = close == kNowhere ? lead : lead.substr(0, close + 1);
  while (format.trigger.ends_with('\n')) format.trigger.pop_back();
  return true;
}

// Learns the form of further calls from texts of one, two and three calls. If that fails, the
// format allows one call at most.
void LearnNext(const CallPieces& one, CallPieces two, CallPieces three, CallFormat& format) {
  if (two.empty() || three.empty()) return;
  CallPieces end = one, end_again = one;
  const CallPieces first = TakeCommon(end, two);
  TakeCommon(end_again, three);
  if (end.size() > 1 || (end.size() == 1 && end[0].kind != Kind::kText)) return;
  const std::string close = end.empty() ? "" : end[0].text;
  if (!TakeEnd(two, close) || !TakeEnd(three, close)) return;
  CallPieces next = two;
  TakeCommon(two, three);  // leaves the third call
  if (!two.empty() || (next != three && !FindIndex(next, three))) return;
  format.first = first;
  format.next = next;
  format.end = close;
}

}  // namespace

Json ProbeArguments() { return Json::Object{{kProbeKeys[0], "argval"}, {kProbeKeys[1], 7}}; }

std::optional<CallFormat> LearnCalls(const CallTexts& texts) {
  CallFormat format;
  CallPieces one = Cutter(texts.one, ArgumentFinder(std::nullopt)).Run(1);
  if (one.empty()) {
    format.tagged = LearnTagged(texts);
    if (!format.tagged.has_value()) return std::nullopt;
    one = Cutter(texts.one, ArgumentFinder(format.tagged)).Run(1);
  }
  if (one.empty()) return std::nullopt;
  format.first = one;
  const ArgumentFinder finder(format.tagged);
  LearnNext(one, Cutter(texts.two, finder).Run(2), Cutter(texts.three, finder).Run(3), format);
  if (!FindTrigger(format)) return std::nullopt;
  return format;
}

}  // namespace thermocline::chat
