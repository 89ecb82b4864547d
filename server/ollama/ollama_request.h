// From the bodies of Ollama's POST /api/chat, /api/generate and /api/embed to Requests.
#pragma once

#include <string>

#include "server/protocol/common_request.h"

namespace thermocline::ollama {

struct OllamaRequest {
  server::Asked asked;
  bool stream = true;
  bool chat = true;        // else of /api/generate
  bool load_only = false;  // nothing is asked: the client wants the model to be there
  bool unload = false;     // or not to be there any more
};

Result<OllamaRequest> ParseChat(std::string_view body, const protocol::RequestDefaults& defaults,
                                int context_length);
Result<OllamaRequest> ParseGenerate(std::string_view body,
                                    const protocol::RequestDefaults& defaults, int context_length);

struct EmbedRequest {
  server::Asked asked;
  int dimensions = 0;
  bool single = false;  // of /api/embeddings: one text, one vector
  bool empty = false;   // no text, as Ollama has it: the answer is an empty list
};
Result<EmbedRequest> ParseEmbed(std::string_view body, Pooling pooling, bool single,
                                bool strict_fields);

// "name:latest" is "name".
std::string ModelName(const std::string& name);

}  // namespace thermocline::ollama
