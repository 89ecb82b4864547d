// The parts of an answer, as a stream and as a whole.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace thermocline::chat {

struct MessagePart {
  enum class Kind {
    kText,
    kReasoning,
    kCallBegin,      // `call`, `id` and `name`
    kCallArguments,  // more of the JSON text of the arguments of `call`
  };
  Kind kind = Kind::kText;
  std::string text = {};
  int call = -1;  // counted from 0
  std::string id = {}, name = {};
};

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

struct WholeMessage {
  std::string text, reasoning;
  std::vector<ToolCall> calls;

  void Add(std::span<const MessagePart> parts) {
    for (const MessagePart& part : parts) {
      switch (part.kind) {
        case MessagePart::Kind::kText:
          text += part.text;
          break;
        case MessagePart::Kind::kReasoning:
          reasoning += part.text;
          break;
        case MessagePart::Kind::kCallBegin:
          calls.push_back({.id = part.id, .name = part.name, .arguments = {}});
          break;
        case MessagePart::Kind::kCallArguments:
          calls.back().arguments += part.text;
          break;
      }
    }
  }
};

}  // namespace thermocline::chat
