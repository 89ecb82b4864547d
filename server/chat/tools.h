// The tools of a request, and what an answer may make of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::chat {

struct Tool {
  std::string name, description;
  Json parameters = {};  // a JSON schema of an object; null: any object
  bool strict = false;   // a schema that is not supported is refused
  bool listed = true;    // else its definition stands in a message, and the prompt's list lacks it
};

struct ToolChoice {
  enum class Mode { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  std::string name = {};  // with kRequired: this one, once; "" = any
  bool parallel = true;   // several calls in one answer
};

struct ToolRequest {
  std::vector<Tool> tools;
  ToolChoice choice;
};

// As OpenAI's API has them, which chat templates read: [{"type": "function", "function": {...}}].
Json ToolsJson(const std::vector<Tool>& tools);

}  // namespace thermocline::chat
