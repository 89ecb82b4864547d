// The one flow from what a client asks to a generation that runs, for every protocol: the model, a
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
#include "server/core/asked.h"
#include "server/core/service.h"

namespace thermocline::server {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nothing = none

// From the request's `arrived` on, however long its body took to be read. A client may ask for less
// time than the server allows, not for more; 0 = any time.
Deadline DeadlineOf(std::chrono::steady_clock::time_point arrived, double allowed_s,
                    double asked_s);
Deadline Earliest(std::initializer_list<Deadline> deadlines);

// NotFound, for kModelNotFound: the service has another model. "" is any.
Status CheckModel(const Service& service, const std::string& name);

// The sender of a request, and the time of its arrival.
struct Sender {
  std::string id;      // of the request
  std::string tenant;  // as in Request
  int priority_max = kPriorityMax;
  std::chrono::steady_clock::time_point arrived;
  Deadline gives_up = {};  // of the client's own; its leaving ends the generation
};

// Thread-compatible; Encode and Compile may be called on other threads than the rest. In this
// order: Admit, Encode, Compile, Start. Letting go of it gives its place back.
class Submission {
 public:
  // Everything that is cheap: what is refused here costs no template and no tokens. Errors as
  // CheckModel, Service::Readiness and Engine::Admit; InvalidArgument: a stop token that there is
  // not.
  static Result<Submission> Admit(Service& service, Sender sender, Asked asked);

  // Makes the tokens of every prompt; conversations keep their tools alone. Errors as EncodePrompt,
  // of Asked::prompt_field; Unavailable: the service has stopped meanwhile.
  Status Encode();
  // After Encode: whether Compile must be called before Start. It may take seconds, so it has
  // threads of its own (Service::compilers).
  bool compiles() const { return grammar_.has_value(); }
  // Compiles the grammar. Errors as Engine::Compile; Unavailable as Encode.
  Status Compile();

  // Gives the place back; also while Encode runs. Nothing is started after it.
  void GiveUp() { place_ = {}; }

  // Submits every choice; `on_ready` as in Generation. Errors as Engine::Submit and Readiness.
  Result<std::shared_ptr<Generation>> Start(std::function<void()> on_ready);

  const Asked& asked() const { return asked_; }
  int choices() const { return asked_.choices; }
  // After Encode: how the answers are read; nullptr: as they are.
  const std::shared_ptr<const chat::Reading>& reading() const { return reading_; }
  // After Encode, before Start: one for each prompt.
  const std::vector<Request>& requests() const { return requests_; }
  // After Encode: bytes of what an answer that is no text is made of and that is kept until it is
  // written: log probabilities and vectors, at most.
  std::size_t KeptBytes() const;
  // True if that prompt's first token is the beginning-of-sequence token that its text lacks.
  bool bos_added(std::size_t prompt) const { return bos_added_[prompt]; }

 private:
  Submission(Service& service, Sender sender, Asked asked);
  Status EncodeOne(const Prompt& prompt);
  // All prompts as one request for their vectors.
  Status EncodeTexts();
  // Once every prompt is encoded: how answers are read, and what they may be.
  Status ReadGrammar();
  bool MayCall() const;
  // Calls may have other forms than the template's: they may, but need not, come.
  bool MayCallLeniently() const;
  // The grammar of an answer that is read in parts; `any_arguments`: of a call.
  Result<std::optional<GrammarSpec>> GrammarOfParts(bool any_arguments) const;
  Status CompileOne(const GrammarSpec& spec);
  void Constrain(const std::shared_ptr<const grammar::CompiledGrammar>& grammar);

  Service* service_;
  Sender sender_;
  Asked asked_;
  Engine::Admission place_;
  std::vector<Request> requests_;
  std::vector<bool> bos_added_;
  // As EncodedPrompt has them, of the last conversation's prompt.
  bool in_reasoning_ = false, may_reason_ = false, continues_ = false;
  std::shared_ptr<const chat::Reading> reading_;
  std::optional<GrammarSpec> grammar_;  // to be compiled
};

}  // namespace thermocline::server
