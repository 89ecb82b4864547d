#include "server/chat/answer_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "server/chat/conversation.h"
#include "server/chat/message_json.h"

namespace thermocline::chat {
namespace {

using base::Digest256;
using base::Sha256;

// Adds a text with its length, so that the bounds of texts count.
void AddText(Sha256& hash, std::string_view text) { hash.Add(StrCat(text.size(), ":", text)); }

void AddVisible(Sha256& hash, std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return AddText(hash, "");
  AddText(hash, text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

constexpr double kExact = 9007199254740992;  // 2^53: below it a double holds every whole number

// Appends a value in one spelling: keys in order, whole numbers by their digits, others as their
// nearest double.
void AppendCanonical(const Json& value, std::string& out) {
  if (value.is_int()) {
    out += StrCat(value.as_int());
  } else if (value.is_number() && !value.is_decimal()) {
    const double number = value.as_double();
    const bool whole = std::floor(number) == number && std::abs(number) < kExact;
    out += whole ? StrCat(static_cast<std::int64_t>(number)) : base::FormatDouble(number);
  } else if (value.is_array()) {
    out += "[";
    for (const Json& each : value.as_array()) {
      AppendCanonical(each, out);
      out += ",";
    }
    out += "]";
  } else if (value.is_object()) {
    std::vector<const Json::Member*> members;
    for (const Json::Member& member : value.as_object()) members.push_back(&member);
    std::stable_sort(members.begin(), members.end(),
                     [](const auto* a, const auto* b) { return a->first < b->first; });
    out += "{";
    for (const Json::Member* member : members) {
      base::AppendJsonString(out, member->first);
      out += ":";
      AppendCanonical(member->second, out);
      out += ",";
    }
    out += "}";
  } else {
    value.AppendTo(out);
  }
}

// The arguments of a call, given as JSON text, which a limit may have cut.
void AddArguments(Sha256& hash, const std::string& text) {
  const auto value = base::ParseJson(text.empty() ? "{}" : text);
  if (!value.ok()) return AddText(hash, text);
  std::string canonical;
  AppendCanonical(*value, canonical);
  AddText(hash, canonical);
}

void AddCall(Sha256& hash, const ToolCall& call) {
  AddText(hash, call.name);
  AddArguments(hash, call.arguments);
}

// Appends what a client sees of a message of the assistant.
void AddSeen(const Json& message, WholeMessage& answer) {
  answer.text += TextOf(message.Find("content"));
  for (ToolCall& call : CallsOf(message)) answer.calls.push_back(std::move(call));
}

void AddAnswer(Sha256& hash, const WholeMessage& answer) {
  AddText(hash, "assistant");
  AddVisible(hash, answer.text);
  AddText(hash, StrCat(answer.calls.size(), " calls"));
  for (const ToolCall& call : answer.calls) AddCall(hash, call);
}

// `digest`, beginning with the bytes of `owner` that name it.
Digest256 OfOwner(const Digest256& owner, Digest256 digest) {
  std::copy_n(owner.begin(), kOwnerBytes, digest.begin());
  return digest;
}

}  // namespace

AnswerKeys KeysOfAnswers(std::string_view owner, const Json::Array& messages) {
  AnswerKeys out;
  Sha256 hash;
  AddText(hash, owner);
  const Digest256 named = hash.Digest();
  for (int i = 0; i < base::IntSize(messages);) {
    if (!IsRole(messages[i], "assistant")) {
      AddText(hash, TextOf(messages[i].Find("role")));
      AddVisible(hash, TextOf(messages[i].Find("content")));
      ++i;
      continue;
    }
    PastAnswer past{.first = i, .count = 0};
    WholeMessage answer;
    for (; i < base::IntSize(messages) && IsRole(messages[i], "assistant"); ++i, ++past.count)
      AddSeen(messages[i], answer);
    past.key = KeyOfAnswer(OfOwner(named, hash.Digest()), answer);
    out.answers.push_back(past);
    AddAnswer(hash, answer);
  }
  out.messages = OfOwner(named, hash.Digest());
  return out;
}

Digest256 KeyOfAnswer(const Digest256& before, const WholeMessage& answer) {
  Sha256 hash;
  hash.Add(before);
  AddAnswer(hash, answer);
  return OfOwner(before, hash.Digest());
}

}  // namespace thermocline::chat
