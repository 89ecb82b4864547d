// The header `traceparent`: whose trace a request belongs to.
// Source: W3C Trace Context, Recommendation of 2021, section 3.2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace thermocline::server {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits
  std::string flags;     // 2
};

// nullopt: there is no trace, or its header is malformed, which counts as none.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
// The same trace with a span of our own, for the answer. `span`: any number, 0 not.
std::string MakeTraceparent(const TraceContext& trace, unsigned long long span);

}  // namespace thermocline::server
