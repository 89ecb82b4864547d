// Parses the bodies of Ollama's POST /api/chat, /api/generate and /api/embed into Requests.
#pragma once

#include <optional>
#include <string>

#include "server/protocol/common_request.h"

namespace thermocline::ollama {

struct OllamaRequest {
  server::GenerationRequest generation;
  bool stream = true;
  bool chat = true;                      // false: /api/generate
  bool load_only = false;                // no prompt: the client wants the model loaded
  bool unload = false;                   // or unloaded
  std::optional<int> keep_alive_s = {};  // -1 = for ever; nullopt = as configured
};

Result<OllamaRequest> ParseChat(std::string_view body, const protocol::RequestDefaults& defaults,
                                int context_length);
Result<OllamaRequest> ParseGenerate(std::string_view body,
                                    const protocol::RequestDefaults& defaults, int context_length);

struct EmbedRequest {
  server::GenerationRequest generation;
  int dimensions = 0;
  bool single = false;                   // /api/embeddings: one text, one embedding
  bool empty = false;                    // no text, which Ollama answers with an empty list
  std::optional<int> keep_alive_s = {};  // as OllamaRequest
};
Result<EmbedRequest> ParseEmbed(std::string_view body, Pooling pooling, bool single,
                                bool strict_fields);

// Removes ":latest" from a name.
std::string ModelName(const std::string& name);

}  // namespace thermocline::ollama
