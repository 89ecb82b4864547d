#include "server/chat/system_messages.h"

#include <algorithm>
#include <string>

#include "engine/base/strings.h"
#include "server/chat/message_json.h"

namespace thermocline::chat {
namespace {

constexpr const char* kBetween = "\n\n";

std::string ContentOf(const Json& message) { return TextOf(message.Find("content")); }

Json Message(const char* role, std::string text) {
  return Json::Object{{"role", role}, {"content", std::move(text)}};
}

// Adds the system messages before the first user message.
void AddLeading(const OutputFormat& format, const Json::Array& leading, Json::Array& out) {
  if (format.system_role && (format.several_systems || leading.size() == 1)) {
    out.insert(out.end(), leading.begin(), leading.end());
    return;
  }
  Json joined = Message(format.system_role ? "system" : "user", "");
  for (const Json& each : leading) AppendContent(joined, kBetween, ContentOf(each));
  if (!ContentOf(joined).empty()) out.push_back(std::move(joined));
}

void AddLate(const OutputFormat& format, const Json& message, Json::Array& out) {
  if (format.late_system) return out.push_back(message);
  const std::string text =
      StrCat("<system-reminder>\n", ContentOf(message), "\n</system-reminder>");
  const bool behind_result = !out.empty() && IsRole(out.back(), "tool");
  if (behind_result && !format.user_after_result) return AppendContent(out.back(), kBetween, text);
  out.push_back(Message("user", text));
}

}  // namespace

Json::Array PlaceSystemMessages(const OutputFormat& format, const Json::Array& messages) {
  const auto is_user = [](const Json& message) { return IsRole(message, "user"); };
  const auto first_user = std::find_if(messages.begin(), messages.end(), is_user);
  Json::Array out, leading;
  for (auto it = messages.begin(); it != first_user; ++it)
    if (IsRole(*it, "system")) leading.push_back(*it);
  if (!leading.empty()) AddLeading(format, leading, out);
  const bool begins_as_user = !leading.empty() && !format.system_role && !out.empty();
  for (auto it = messages.begin(); it != messages.end(); ++it) {
    if (IsRole(*it, "system")) {
      if (it >= first_user) AddLate(format, *it, out);
    } else if (it == first_user && begins_as_user && IsRole(out.back(), "user")) {
      AppendContent(out.back(), kBetween, ContentOf(*it));
    } else {
      out.push_back(*it);
    }
  }
  return out;
}

Json::Array JoinUserMessages(Json::Array messages) {
  Json::Array out;
  for (Json& message : messages) {
    if (!out.empty() && IsRole(out.back(), "user") && IsRole(message, "user")) {
      AppendContent(out.back(), kBetween, ContentOf(message));
    } else {
      out.push_back(std::move(message));
    }
  }
  return out;
}

}  // namespace thermocline::chat
