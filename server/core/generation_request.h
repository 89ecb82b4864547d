// A client's request for a generation, in any protocol.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/api/grammar_spec.h"
#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/chat/conversation.h"
#include "server/core/chosen_adapters.h"

namespace thermocline::server {

using chat::Conversation;

// A gap between two texts, which the model fills.
struct Infill {
  struct File {
    std::string name = {}, text = {};
  };
  std::string prefix = {}, suffix = {};
  std::vector<File> others = {};  // files of the same repository; the first ones are dropped first
};

// A text that is ranked for a query, by a model that scores pairs.
struct RankedPair {
  std::shared_ptr<const std::string> query = {};
  std::string text = {};
};

// A text, token ids, a conversation, a gap, or a pair.
using Prompt = std::variant<std::string, std::vector<int>, Conversation, Infill, RankedPair>;

struct GenerationRequest {
  std::string model = {};                               // "" = not given
  std::optional<std::vector<ChosenAdapter>> lora = {};  // absent: by `model`
  Request request = {};                                 // without prompt, tenant and deadline
  std::vector<Prompt> prompts = {};                     // at least one
  std::string prompt_field = {};                        // the protocol's name of the prompt field
  std::string suffix_field = {};  // and of the field with the text behind a gap
  int choices = 1;                // per prompt
  std::optional<GrammarSpec> grammar = {};
  // Set for a conversation: the output is parsed into reasoning, text and calls
  // (Submission::parser_config).
  bool in_parts = false;
  // Set if the client wants the prompts' embeddings instead of an answer: one request for all of
  // them.
  std::optional<Pooling> embed = {};
  // With `embed`: longer texts are truncated to so many tokens, at most to the context; 0 = they
  // are rejected.
  int text_tokens_max = 0;
  double timeout_s = 0;                          // 0 = the server's timeout
  std::vector<std::string> ignored_fields = {};  // fields that the route does not know
  // The server's token limit for a request that sets none; 0 = the request sets one, or there is no
  // limit.
  int default_max_tokens = 0;
};

}  // namespace thermocline::server
