// The tools of a request, and its limits on calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::chat {

class ArgumentTypes;

struct Tool {
  std::string name, description;
  Json parameters = {};  // JSON schema of an object; null: any object
  bool strict = false;   // reject an unsupported schema
  bool listed = true;    // false: a message defines it, so the prompt's list omits it
  std::shared_ptr<const ArgumentTypes> types = {};  // null: FindTypes has not been called
};

struct ToolChoice {
  enum class Mode { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  std::string name = {};  // with kRequired: call this tool once; "" = any
  bool parallel = true;   // allow several calls in one answer
};

struct ToolRequest {
  std::vector<Tool> tools;
  ToolChoice choice;
};

// The form of OpenAI's API, which chat templates read: [{"type": "function", "function": {...}}].
Json ToolsJson(const std::vector<Tool>& tools);

}  // namespace thermocline::chat
