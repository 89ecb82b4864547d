#include "server/core/requested_model.h"

#include <algorithm>
#include <charconv>

#include "engine/base/json.h"

namespace thermocline::server {
namespace {

constexpr std::string_view kModelKey = "\"model\"", kNameKey = "\"name\"",
                           kStreamKey = "\"stream\"", kOllamaRoutes = "/api/";

// The end of the text whose opening quote is at `begin`; npos: it is open.
std::size_t EndOfQuoted(std::string_view json, std::size_t begin) {
  for (std::size_t i = begin + 1; i < json.size(); ++i) {
    if (json[i] == '\\')
      ++i;
    else if (json[i] == '"')
      return i;
  }
  return std::string_view::npos;
}

std::size_t PastSpace(std::string_view json, std::size_t at) {
  return std::min(json.find_first_not_of(" \t\r\n", at), json.size());
}

// Calls `visit` for the members of the outermost object, with the key in its quotes and the place
// where the value begins, until it returns false. Malformed JSON is accepted.
template <typename Visit>
void ForEachMember(std::string_view json, Visit visit) {
  int depth = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    const std::size_t end = EndOfQuoted(json, i);
    if (end == std::string_view::npos) return;
    std::string_view key = json.substr(i, end - i + 1);
    const std::size_t colon = PastSpace(json, end + 1);
    i = end;
    if (depth != 1 || colon == json.size() || json[colon] != ':') continue;
    const std::size_t value = PastSpace(json, colon + 1);
    std::string plain;  // a key may be written with escapes
    if (key.find('\\') != std::string_view::npos)
      if (const auto text = base::ParseJson(key); text.ok())
        key = plain = '"' + text->as_string() + '"';
    if (value < json.size() && !visit(key, value)) return;
  }
}

}  // namespace

std::string UrlDecoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const bool escape =
        text[i] == '%' && digits.size() == 2 &&
        std::from_chars(digits.data(), digits.data() + 2, value, 16).ptr == digits.data() + 2;
    out.push_back(escape ? static_cast<char>(value) : text[i]);
    if (escape) i += 2;
  }
  return out;
}

std::string ModelOfQuery(std::string_view target) {
  constexpr std::string_view kParameter = "model=";
  std::size_t at = target.find('?');
  while (at != std::string_view::npos) {
    const std::string_view rest = target.substr(at + 1);
    const std::size_t end = rest.find('&');
    if (rest.starts_with(kParameter))
      return UrlDecoded(rest.substr(0, end).substr(kParameter.size()));
    at = end == std::string_view::npos ? end : at + 1 + end;
  }
  return "";
}

std::string ModelOf(std::string_view json, bool or_name) {
  // The values in their quotes. Of a member that comes twice, routes read the last, too.
  std::string_view model, name;
  ForEachMember(json, [&](std::string_view key, std::size_t value) {
    if (key != kModelKey && (key != kNameKey || !or_name)) return true;
    if (json[value] != '"') return true;
    const std::size_t last = EndOfQuoted(json, value);
    if (last == std::string_view::npos) return false;
    (key == kModelKey ? model : name) = json.substr(value, last - value + 1);
    return true;
  });
  const auto text = base::ParseJson(model.empty() ? name : model);
  return text.ok() && text->is_string() ? text->as_string() : "";
}

bool AsksForStream(std::string_view json) {
  bool stream = false;
  ForEachMember(json, [&](std::string_view key, std::size_t value) {
    if (key == kStreamKey) stream = json.substr(value).starts_with("true");
    return true;
  });
  return stream;
}

std::string RequestedModel(std::string_view body, std::string_view target) {
  std::string name = ModelOf(body, target.starts_with(kOllamaRoutes));
  return name.empty() ? ModelOfQuery(target) : name;
}

}  // namespace thermocline::server
