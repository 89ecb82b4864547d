// Fuzzes a chat template of a model's file, rendered with a conversation.
#include "engine/text/chat_template.h"

#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Json variables =
      *base::ParseJson(R"({"messages": [{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]},
      {"role": "tool", "content": "3", "tool_call_id": "a"}], "add_generation_prompt": true,
      "tools": [{"type": "function", "function": {"name": "f", "description": "F",
      "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}],
      "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": false})");
  const auto made = text::ChatTemplate::Parse(fuzz::TextOf(data, size));
  if (made.ok()) (void)(*made)->Render(variables);
  return 0;
}
