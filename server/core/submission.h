// The one path from a client's request to a running generation, for every protocol: the model, a
// place in the queue, the deadline, the prompts' tokens, the choices.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/chat/output_parser.h"
#include "server/core/generation_request.h"
#include "server/core/prompt.h"
#include "server/core/prompt_parts.h"
#include "server/core/service.h"

namespace thermocline::server {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nullopt = no deadline

// The deadline, counted from the request's arrival even if its body arrived slowly. A client may
// shorten the server's time, not extend it; 0 = no limit.
Deadline DeadlineOf(std::chrono::steady_clock::time_point arrived, double allowed_s,
                    double asked_s);
Deadline Earliest(std::initializer_list<Deadline> deadlines);

// NotFound, for kModelNotFound: the service has another model. "" matches any.
Status CheckModel(const Service& service, const std::string& name);
// NotFound: no model of the daemon has that name.
Status CheckListed(const Service& service, const std::string& name, const ModelRights& rights = {});

// The sender of a request, and its arrival.
struct Sender {
  std::string id;      // of the request
  std::string tenant;  // as in Request
  int priority_max = kPriorityMax;
  std::chrono::steady_clock::time_point arrived;
  // The client's own deadline, at which it disconnects and so cancels.
  Deadline client_deadline = {};
  ModelRights models = {};  // that the client may use
};

// Thread-compatible; Encode and Compile may be called on other threads than the rest. The order is
// Admit, Encode, Compile, Start. The destructor releases the queue place.
class Submission {
 public:
  // All cheap checks, so that a rejected request costs no template or tokenizing. Errors as
  // CheckModel, Service::Readiness and Engine::Admit; InvalidArgument: an unknown stop token.
  static Result<Submission> Admit(Service& service, Sender sender, GenerationRequest generation);

  // Tokenizes every prompt; conversations keep only their tools. Errors as EncodePrompt, of
  // GenerationRequest::prompt_field; Unavailable: the service has stopped meanwhile.
  Status Encode();
  // Valid after Encode: true if Compile must be called before Start. Compiling may take seconds, so
  // it has its own threads (Service::compilers).
  bool compiles() const { return grammar_.has_value(); }
  // Compiles the grammar. Errors as Engine::Compile; Unavailable as Encode.
  Status Compile();

  // Releases the queue place; may be called while Encode runs. Start must not be called after it.
  void ReleasePlace() { place_ = {}; }

  // Submits every choice; `on_ready` as in Generation. Errors as Engine::Submit and Readiness.
  Result<std::shared_ptr<Generation>> Start(std::function<void()> on_ready);

  const GenerationRequest& generation_request() const { return generation_request_; }
  int choices() const { return generation_request_.choices; }
  // Valid after Encode: the parser settings for the answers; nullptr: they are plain text.
  const std::shared_ptr<const chat::OutputParserConfig>& parser_config() const {
    return parser_config_;
  }
  // One per prompt; valid between Encode and Start.
  const std::vector<Request>& requests() const { return requests_; }
  // Valid after Encode: an upper bound of the bytes kept until the answer is written, besides its
  // text: log probabilities and embeddings.
  std::size_t KeptBytes() const;
  // Valid after Encode: where each prompt's answers may be remembered, one per prompt.
  const std::vector<std::optional<AnswerPlace>>& places() const { return places_; }
  // Valid after Encode: tokens of each prompt that the token memory had.
  const std::vector<int>& replayed() const { return replayed_; }
  // Valid after Encode: the most tokens of reasoning in an answer; -1 = any number.
  int reasoning_budget() const { return reasoning_budget_; }
  // Valid after Encode: the parts of each prompt; nullopt if it is no conversation.
  const std::vector<std::optional<PromptParts>>& parts() const { return parts_; }
  // True if the prompt's first token is a beginning-of-sequence token that its text lacks.
  bool bos_added(std::size_t prompt) const { return bos_added_[prompt]; }

 private:
  Submission(Service& service, Sender sender, GenerationRequest generation);
  Status EncodeOne(const Prompt& prompt);
  std::optional<std::string> MemoryOwner() const;
  // Sets the limit of reasoning for the conversation's prompt, which it may change.
  // InvalidArgument: the message holds a mark of reasoning.
  Status ReadReasoningBudget();
  std::string ReasoningMessage() const;
  // Called after the prompt is encoded: sets the same limit for the sampler.
  void LimitReasoning();
  // Makes one embedding request of all prompts.
  Status EncodeTexts();
  // Called after every prompt is encoded: sets the parser settings and the answer's grammar.
  Status ReadGrammar();
  bool MayCall() const;
  // True if calls in other formats than the template's are accepted.
  bool MayCallLeniently() const;
  // The grammar of an answer that is parsed into parts; `any_arguments`: calls may have any
  // arguments.
  Result<std::optional<GrammarSpec>> GrammarOfParts(bool any_arguments) const;
  Status CompileOne(const GrammarSpec& spec);
  void Constrain(const std::shared_ptr<const grammar::CompiledGrammar>& grammar);

  Service* service_;
  Sender sender_;
  GenerationRequest generation_request_;
  Engine::Admission place_;
  std::vector<Request> requests_;
  std::vector<bool> bos_added_;
  std::vector<std::optional<AnswerPlace>> places_;
  std::vector<int> replayed_;
  std::vector<std::optional<PromptParts>> parts_;
  int reasoning_budget_ = -1;
  // As in EncodedPrompt, for the last conversation.
  bool in_reasoning_ = false, may_reason_ = false, continues_ = false;
  std::shared_ptr<const chat::OutputParserConfig> parser_config_;
  std::optional<GrammarSpec> grammar_;  // to compile
};

}  // namespace thermocline::server
