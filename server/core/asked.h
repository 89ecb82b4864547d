// A client's request for a generation, in any protocol.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/api/grammar_spec.h"
#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/chat/conversation.h"

namespace thermocline::server {

using chat::Conversation;

// A gap between two texts, which the model is to fill.
struct Infill {
  struct File {
    std::string name = {}, text = {};
  };
  std::string prefix = {}, suffix = {};
  std::vector<File> others = {};  // of the same repository; the first ones make way for the rest
};

// A text, the ids of its tokens, a conversation, or a gap.
using Prompt = std::variant<std::string, std::vector<int>, Conversation, Infill>;

struct Asked {
  std::string model = {};            // "" = not given
  Request request = {};              // without prompt, tenant and deadline
  std::vector<Prompt> prompts = {};  // at least one
  std::string prompt_field = {};     // as the protocol calls them
  std::string suffix_field = {};     // and the text behind a gap
  int choices = 1;                   // of each prompt
  std::optional<GrammarSpec> grammar = {};
  // Set for a conversation: the answer is read as reasoning, text and calls (Submission::reading).
  bool in_parts = false;
  // The prompts' vectors are wanted instead of an answer: one request for all of them.
  std::optional<Pooling> embed = {};
  // With `embed`: longer texts are cut to so many tokens, and to the context at most; 0 = they are
  // refused.
  int text_tokens_max = 0;
  double timeout_s = 0;                          // 0 = the server's
  std::vector<std::string> ignored_fields = {};  // names that the route does not know
  // The server's bound on the answer's tokens, where the request has none; 0 = it has, or none
  // holds.
  int default_max_tokens = 0;
};

}  // namespace thermocline::server
