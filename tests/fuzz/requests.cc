// Fuzzes the body of a request to a JSON route, which the first byte selects.
#include "server/anthropic/messages_request.h"
#include "server/llama/llama_request.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/openai/responses_request.h"
#include "server/protocol/embedding_request.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body = fuzz::TextOf(data + 1, size - 1);
  const protocol::RequestDefaults defaults{.sampling = {}, .max_tokens = 16};
  constexpr int kContext = 512;
  switch (data[0] % 12) {
    case 0:
      (void)openai::ParseChatRequest(body, defaults);
      break;
    case 1:
      (void)openai::ParseCompletionRequest(body, defaults);
      break;
    case 2:
      (void)openai::ParseResponsesRequest(body, defaults);
      break;
    case 3:
      (void)protocol::ParseEmbeddingRequest(body, Pooling::kMean);
      break;
    case 4:
      (void)protocol::ParseRerankRequest(body, Pooling::kMean);
      break;
    case 5:
      (void)anthropic::ParseMessagesRequest(body, defaults);
      break;
    case 6:
      (void)ollama::ParseChat(body, defaults, kContext);
      break;
    case 7:
      (void)ollama::ParseGenerate(body, defaults, kContext);
      break;
    case 8:
      (void)ollama::ParseEmbed(body, Pooling::kMean, false, false);
      break;
    case 9:
      (void)ollama::ParseEmbed(body, Pooling::kMean, true, false);
      break;
    case 10:
      (void)llama::ParseCompletion(body, defaults);
      break;
    default:
      (void)llama::ParseInfill(body, defaults);
  }
  return 0;
}
