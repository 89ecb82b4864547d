// The header `traceparent`, which names the trace that a request belongs to. Source: W3C Trace
// Context, Recommendation of 2021, section 3.2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace thermocline::server {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits
  std::string flags;     // 2
};

// nullopt for a missing or malformed header.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
// The header of the response: the same trace with a span of our own. Requires: `span` is not 0.
std::string MakeTraceparent(const TraceContext& trace, unsigned long long span);

}  // namespace thermocline::server
