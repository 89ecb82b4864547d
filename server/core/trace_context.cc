#include "server/core/trace_context.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/strings.h"

namespace thermocline::server {
namespace {

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

// The format is version "-" trace-id "-" parent-id "-" flags: 2, 32, 16 and 2 digits.
std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  constexpr std::size_t kBytes = 55;
  if (header.size() < kBytes || header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const std::string_view version = header.substr(0, 2), trace = header.substr(3, 32);
  const std::string_view parent = header.substr(36, 16), flags = header.substr(53, 2);
  if (!IsHex(version) || !IsHex(trace) || !IsHex(parent) || !IsHex(flags)) return std::nullopt;
  if (version == "ff" || IsZero(trace) || IsZero(parent)) return std::nullopt;
  // Later versions may append fields after another '-'.
  const bool more = header.size() > kBytes;
  if (more && (version == "00" || header[kBytes] != '-')) return std::nullopt;
  return TraceContext{.trace_id = std::string(trace), .flags = std::string(flags)};
}

std::string MakeTraceparent(const TraceContext& trace, unsigned long long span) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", span | 1);
  return StrCat("00-", trace.trace_id, "-", digits, "-", trace.flags);
}

}  // namespace thermocline::server
