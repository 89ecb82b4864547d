// One event of an OpenAI stream, with the fields that a load test needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace thermocline::loadtest {

struct StreamChunk {
  bool parsed = false;  // it is JSON of a known form
  // It has generated text, reasoning or a tool call, not only the role.
  bool content = false;
  std::string text = {};
  std::string finish_reason = {}, error = {};
  std::optional<std::int64_t> prompt_tokens = {}, output_tokens = {}, cached_tokens = {};
};

// Parses a chunk of a chat or of a completion. Accepts any text: members of wrong types count as
// absent.
StreamChunk ParseStreamChunk(std::string_view data);

// Returns the message in an error's body: OpenAI's message, else the text itself, shortened.
std::string ErrorText(std::string_view body);

}  // namespace thermocline::loadtest
