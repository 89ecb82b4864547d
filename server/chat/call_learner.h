// Learns the format of calls from texts that contain calls with known names and arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

// The tools of probes, and the ids of their calls.
inline constexpr const char* kProbeTools[] = {"toolone", "tooltwo", "toolthree"};
inline constexpr const char* kProbeIds[] = {"call12345", "call67890", "call24680"};
inline constexpr const char* kProbeKeys[] = {"argkey", "num", "zed"};  // sorted

// Answers that consist of calls of the probes' tools, without the answer's end marks.
struct CallTexts {
  std::string one;         // toolone with {"argkey": "argval", "num": 7}
  std::string two, three;  // with more tools; "" if the template rejects so many
  // toolone with {}, {"argkey": "argval"}, {"num": 7}, {"argkey": "argval", "num": 7, "zed":
  // "last"}; "" as above.
  std::string none, text, other, mixed;
};

// The arguments of the first call in CallTexts::one, `two` and `three`.
Json ProbeArguments();

// Returns the format, or nullopt if the calls are missing from the texts or cannot be learned.
std::optional<CallFormat> LearnCalls(const CallTexts& texts);

}  // namespace thermocline::chat
