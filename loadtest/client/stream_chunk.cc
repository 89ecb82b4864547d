#include "loadtest/client/stream_chunk.h"

#include "engine/base/bytes.h"
#include "engine/base/json.h"
#include "loadtest/workload/answer.h"

namespace thermocline::loadtest {
namespace {

std::string TextOf(const Json& json, std::string_view key) {
  const Json* found = json.Find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

// Larger counts are ignored, since sums must not overflow.
constexpr std::int64_t kCountMax = 1'000'000'000;

std::optional<std::int64_t> CountOf(const Json& json, std::string_view key) {
  const Json* found = json.Find(key);
  if (found == nullptr || !found->is_int()) return std::nullopt;
  if (found->as_int() < 0 || found->as_int() > kCountMax) return std::nullopt;
  return found->as_int();
}

// Reads the content and the finish reason.
void ReadChoice(const Json& choice, StreamChunk& chunk) {
  if (const Json* delta = choice.Find("delta")) {
    // Reasoning is generated text, too; servers use several names for it.
    for (const char* key : {"content", "reasoning_content", "reasoning", "refusal"})
      chunk.text += TextOf(*delta, key);
    const Json* calls = delta->Find("tool_calls");
    chunk.content = calls != nullptr && calls->is_array() && !calls->as_array().empty();
  }
  chunk.text += TextOf(choice, "text");
  chunk.content = chunk.content || !chunk.text.empty();
  chunk.finish_reason = TextOf(choice, "finish_reason");
}

void ReadUsage(const Json& usage, StreamChunk& chunk) {
  chunk.prompt_tokens = CountOf(usage, "prompt_tokens");
  chunk.output_tokens = CountOf(usage, "completion_tokens");
  if (const Json* details = usage.Find("prompt_tokens_details"))
    chunk.cached_tokens = CountOf(*details, "cached_tokens");
}

std::string MessageOf(const Json& error) {
  if (error.is_string()) return error.as_string();
  const std::string message = TextOf(error, "message");
  return message.empty() ? error.Dump() : message;
}

// The text as one printable line.
std::string Printable(std::string_view text) {
  std::string out = base::ReplaceInvalidUtf8(base::Shorten(text, kErrorBytesMax));
  for (char& c : out) {
    if (base::ByteOf(c) < ' ' || c == '\x7F') c = ' ';
  }
  return out;
}

}  // namespace

StreamChunk ParseStreamChunk(std::string_view data) {
  StreamChunk chunk;
  auto parsed = base::ParseJson(data);
  if (!parsed.ok()) parsed = base::ParseJson(base::ReplaceInvalidUtf8(data));
  if (!parsed.ok() || !parsed->is_object()) return chunk;
  const Json& json = *parsed;
  if (const Json* error = json.Find("error")) {
    chunk.parsed = true;
    chunk.error = Printable(MessageOf(*error));
    return chunk;
  }
  const Json* choices = json.Find("choices");
  const Json* usage = json.Find("usage");
  chunk.parsed = choices != nullptr || usage != nullptr;
  if (choices != nullptr && choices->is_array() && !choices->as_array().empty())
    ReadChoice(choices->as_array().front(), chunk);
  if (usage != nullptr) ReadUsage(*usage, chunk);
  return chunk;
}

std::string ErrorText(std::string_view body) {
  const auto parsed = base::ParseJson(body);
  if (!parsed.ok() || !parsed->is_object()) return Printable(body);
  if (const Json* error = parsed->Find("error")) return Printable(MessageOf(*error));
  for (const char* key : {"message", "detail"}) {
    if (const std::string text = TextOf(*parsed, key); !text.empty()) return Printable(text);
  }
  return Printable(body);
}

}  // namespace thermocline::loadtest
