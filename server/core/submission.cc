#include "server/core/submission.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/interruption.h"
#include "engine/base/strings.h"
#include "server/chat/answer_grammar.h"
#include "server/chat/argument_forms.h"
#include "server/core/prompt.h"
#include "server/core/reasoning_limit.h"
#include "server/core/served_models.h"

namespace thermocline::server {
namespace {

using Clock = std::chrono::steady_clock;

Deadline After(Clock::time_point begin, double seconds) {
  if (seconds <= 0) return std::nullopt;
  return begin +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::size_t TextBytes(const Json& value) {
  if (value.is_string()) return value.as_string().size();
  std::size_t bytes = 0;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) bytes += TextBytes(item);
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.as_object()) bytes += TextBytes(item);
  }
  return bytes;
}

// An estimate. Ids count as a text of as many tokens.
std::size_t BytesOf(const Prompt& prompt) {
  constexpr std::size_t kBytesPerToken = 4;
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) return ids->size() * kBytesPerToken;
  if (const auto* gap = std::get_if<Infill>(&prompt))
    return gap->prefix.size() + gap->suffix.size();
  if (const auto* pair = std::get_if<RankedPair>(&prompt))
    return pair->query->size() + pair->text.size();
  return TextBytes(std::get<Conversation>(prompt).json);
}

std::size_t LongestBytes(const std::vector<Prompt>& prompts) {
  std::size_t bytes = 0;
  for (const Prompt& prompt : prompts) bytes = std::max(bytes, BytesOf(prompt));
  return bytes;
}

// "'a', 'b'": at most 20 of them.
std::string Quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    if (names[i] != "*") out += StrCat(out.empty() ? "'" : ", '", names[i], "'");
  return names.size() > kMost ? out + ", ..." : out;
}

}  // namespace

Deadline DeadlineOf(Clock::time_point arrived, double allowed_s, double asked_s) {
  return Earliest({After(arrived, allowed_s), After(arrived, asked_s)});
}

Deadline Earliest(std::initializer_list<Deadline> deadlines) {
  Deadline first;
  for (const Deadline& each : deadlines)
    if (each.has_value() && (!first.has_value() || *each < *first)) first = each;
  return first;
}

namespace {

bool IsAmong(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [wanted = PlainName(name)](const std::string& other) {
                       return other == "*" || PlainName(other) == wanted;
                     });
}

std::vector<std::string> NamesOf(const Service& service, const ModelRights& rights) {
  if (service.models() != nullptr) return service.models()->Names(rights);
  return service.model_names(rights);
}

Status NoModel(const Service& service, const std::string& name, const ModelRights& rights = {}) {
  constexpr std::size_t kNameBytesMax = 128;  // in a message, which gRPC's trailers carry twice
  return base::NotFound("the model '", base::Shorten(name, kNameBytesMax),
                        "' does not exist; this server has ", Quoted(NamesOf(service, rights)))
      .WithReason(Reason::kModelNotFound);
}

// A name allows a model as it is loaded, or one of its adapters. With the model's
// own, a client may choose adapters that it may name, too.
Status CheckRights(const Service& service, const ModelRights& rights,
                   const GenerationRequest& generation) {
  if (rights.all()) return OkStatus();
  const std::vector<std::string> names = service.model_names(rights);
  const bool own = rights.Allow(service.own_names());
  const bool named = generation.model.empty() ? own : IsAmong(names, generation.model);
  if (!named) return NoModel(service, generation.model, rights);
  if (!generation.lora.has_value()) return OkStatus();
  const auto adapters =
      service.engine() == nullptr ? std::vector<AdapterChoice>() : service.engine()->adapters();
  for (const ChosenAdapter& each : *generation.lora) {
    const bool known = each.id >= 0 && each.id < base::IntSize(adapters);
    if (own && (!known || each.scale == 0 || IsAmong(names, adapters[each.id].name))) continue;
    return base::InvalidArgument("'lora' names the adapter ", each.id,
                                 ", which this key may not use")
        .WithField("lora");
  }
  return OkStatus();
}

}  // namespace

Status CheckModel(const Service& service, const std::string& name) {
  if (name.empty() || IsAmong(service.model_names(), name)) return OkStatus();
  return NoModel(service, name, {.names = service.model_names()});
}

Status CheckListed(const Service& service, const std::string& name, const ModelRights& rights) {
  const std::vector<std::string> names = NamesOf(service, rights);
  const bool listed = name.empty() ? !names.empty() : IsAmong(names, name);
  return listed ? OkStatus() : NoModel(service, name, rights);
}

Submission::Submission(Service& service, Sender sender, GenerationRequest generation)
    : service_(&service), sender_(std::move(sender)), generation_request_(std::move(generation)) {}

Result<Submission> Submission::Admit(Service& service, Sender sender,
                                     GenerationRequest generation) {
  RETURN_IF_ERROR(CheckModel(service, generation.model));
  RETURN_IF_ERROR(CheckRights(service, sender.models, generation));
  RETURN_IF_ERROR(service.Readiness());
  RETURN_IF_ERROR(CheckTokens(service, generation.request.stop_tokens).WithField("stop_token_ids"));
  ASSIGN_OR_RETURN(generation.request.adapter_scales,
                   AdapterScalesOf(*service.engine(), generation.model, generation.lora));
  Submission submission(service, std::move(sender), std::move(generation));
  const Sender& from = submission.sender_;
  Request& request = submission.generation_request_.request;
  request.tenant = from.tenant;
  request.prefix_owner = service.reloadable()->PrefixOwner(from.tenant);
  request.priority = std::min(request.priority, from.priority_max);
  request.deadline = DeadlineOf(from.arrived, service.reloadable()->config.request_timeout_s,
                                submission.generation_request_.timeout_s);
  const std::vector<Prompt>& prompts = submission.generation_request_.prompts;
  // The client's own deadline is not passed to the engine: the client disconnects then, which
  // cancels the request.
  ASSIGN_OR_RETURN(
      submission.place_,
      service.engine()->Admit({.requests = submission.generation_request_.embed.has_value()
                                               ? 1
                                               : base::IntSize(prompts) * submission.choices(),
                               .prompt_bytes = LongestBytes(prompts),
                               .deadline = Earliest({from.client_deadline, request.deadline}),
                               .tenant = from.tenant}));
  return submission;
}

Status Submission::Encode() {
  RETURN_IF_ERROR(service_->Readiness());
  const bool embeds = generation_request_.embed.has_value();
  if (embeds) {
    RETURN_IF_ERROR(EncodeTexts());
  } else {
    if (generation_request_.in_parts) RETURN_IF_ERROR(ReadReasoningBudget());
    for (const Prompt& prompt : generation_request_.prompts) RETURN_IF_ERROR(EncodeOne(prompt));
  }
  if (base::Interrupted()) return ShuttingDown();  // or the client has disconnected
  // The messages are tokenized. Their JSON is freed, since a request that waits for its grammar is
  // not accounted for.
  for (Prompt& prompt : generation_request_.prompts)
    if (auto* conversation = std::get_if<Conversation>(&prompt)) conversation->json = {};
  return embeds ? OkStatus() : ReadGrammar();
}

Status Submission::ReadReasoningBudget() {
  auto& conversation = std::get<Conversation>(generation_request_.prompts[0]);
  const chat::OutputFormat& format = *service_->output_format();
  const auto budget =
      ReasoningBudget(conversation, format, service_->engine()->Stats().context_length,
                      service_->reloadable()->config);
  reasoning_budget_ = budget.value_or(-1);
  // The template can say better than an empty thought that there is none.
  if (budget == 0 && format.has_thinking_switch &&
      conversation.json.FindRaw("enable_thinking") == nullptr)
    conversation.json.Set("enable_thinking", false);
  const std::string message = ReasoningMessage();
  for (const std::string& mark : {format.reasoning.open, format.reasoning.close}) {
    if (!mark.empty() && message.find(mark) != std::string::npos)
      return base::InvalidArgument(
                 "'reasoning_budget_message' (or chat.reasoning_budget_message) "
                 "holds '",
                 mark, "', which begins or ends the model's reasoning")
          .WithField("reasoning_budget_message");
  }
  return OkStatus();
}

std::string Submission::ReasoningMessage() const {
  return std::get<Conversation>(generation_request_.prompts[0])
      .reasoning_message.value_or(service_->reloadable()->config.reasoning_budget_message);
}

void Submission::LimitReasoning() {
  if (reasoning_budget_ < 0) return;
  const auto limit = MakeThoughtLimit(
      *service_->output_format(), service_->engine()->tokenizer(), reasoning_budget_,
      {.in_reasoning = in_reasoning_, .may_call = MayCall(), .message = ReasoningMessage()});
  for (Request& request : requests_) request.sampling.thought = limit;
}

Status Submission::EncodeTexts() {
  Request request = generation_request_.request;
  request.embed = EmbedRequest{.pooling = *generation_request_.embed};
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < generation_request_.prompts.size(); ++i) {
    auto tokens =
        EncodeForEmbedding(*service_, generation_request_.prompts[i], *generation_request_.embed,
                           generation_request_.text_tokens_max);
    if (!tokens.ok())
      return tokens.status()
          .Annotate(StrCat(generation_request_.prompt_field, "[", i, "]"))
          .WithField(generation_request_.prompt_field);
    request.prompt.insert(request.prompt.end(), tokens->begin(), tokens->end());
    // Every pair has the query's tokens again.
    constexpr std::size_t kRankedTokensMax = 1 << 20;
    if (request.embed->pooling == Pooling::kRank && request.prompt.size() > kRankedTokensMax)
      return base::InvalidArgument("the pairs of query and document have more than ",
                                   kRankedTokensMax, " tokens; ask for fewer documents at a time")
          .WithField(generation_request_.prompt_field);
    request.embed->ends.push_back(base::IntSize(request.prompt));
  }
  service_->metrics().Tokenized(std::chrono::duration<double>(Clock::now() - begin).count());
  requests_.push_back(std::move(request));
  bos_added_.push_back(false);
  places_.emplace_back();
  replayed_.push_back(0);
  parts_.emplace_back();
  return OkStatus();
}

// The owner of the remembered answers; nullopt: they are not used. With strings that end the answer
// its tokens may go on behind the text that the client gets.
std::optional<std::string> Submission::MemoryOwner() const {
  const bool used = generation_request_.in_parts && generation_request_.request.stop.empty();
  return used ? AnswerOwner(*service_, sender_.tenant) : std::nullopt;
}

Status Submission::EncodeOne(const Prompt& prompt) {
  const auto begin = Clock::now();
  auto encoded = EncodePrompt(*service_, prompt, MemoryOwner());
  if (!std::holds_alternative<std::vector<int>>(prompt))
    service_->metrics().Tokenized(std::chrono::duration<double>(Clock::now() - begin).count());
  if (!encoded.ok()) {
    const bool gap =
        std::holds_alternative<Infill>(prompt) && !generation_request_.suffix_field.empty();
    return encoded.status().WithField(gap ? generation_request_.suffix_field
                                          : generation_request_.prompt_field);
  }
  parts_.emplace_back();
  if (const auto* chat = std::get_if<Conversation>(&prompt))
    parts_.back().emplace(*chat, encoded->tokens, *service_->output_format(),
                          service_->engine()->tokenizer());
  requests_.push_back(generation_request_.request);
  requests_.back().prompt = std::move(encoded->tokens);
  for (const int end : encoded->ends) requests_.back().stop_tokens.push_back(end);
  bos_added_.push_back(encoded->bos_added);
  places_.push_back(std::move(encoded->place));
  replayed_.push_back(encoded->replayed);
  in_reasoning_ = encoded->in_reasoning;
  may_reason_ = encoded->may_reason;
  continues_ = encoded->continues;
  return OkStatus();
}

std::size_t Submission::KeptBytes() const {
  const EngineStats stats = service_->engine()->Stats();
  std::size_t kept = 0;
  for (const Request& request : requests_) {
    if (request.embed.has_value())
      kept += base::Area(base::IntSize(request.embed->ends), stats.hidden_size) * sizeof(float);
    if (request.logprobs < 0) continue;
    const int rest = std::max(0, stats.context_length - base::IntSize(request.prompt));
    const int generated = request.max_tokens > 0 ? std::min(request.max_tokens, rest) : rest;
    const int read = request.prompt_logprobs ? base::IntSize(request.prompt) : 0;
    kept += base::Area(choices() * (read + generated), request.logprobs + 1) *
            sizeof(TokenChannel::Score);
  }
  return kept;
}

Status Submission::ReadGrammar() {
  if (generation_request_.in_parts) {
    auto& conversation = std::get<Conversation>(generation_request_.prompts[0]);
    const auto& format = service_->output_format();
    if (MayCall()) chat::FindTypes(conversation.tools.tools);
    parser_config_ = std::make_shared<const chat::OutputParserConfig>(
        chat::OutputParserConfig{.format = format,
                                 .calls = MayCall(),
                                 .in_reasoning = in_reasoning_,
                                 .continues = continues_,
                                 .lenient = MayCallLeniently(),
                                 .parallel = conversation.tools.choice.parallel,
                                 .tools = conversation.tools.tools});
    for (Request& request : requests_) request.shown_tokens = chat::ShownTokens(*format, MayCall());
    LimitReasoning();
    ASSIGN_OR_RETURN(grammar_, GrammarOfParts(false));
  } else {
    grammar_ = generation_request_.grammar;
  }
  if (!grammar_.has_value()) return OkStatus();
  if (const auto found = service_->engine()->FindCompiled(*grammar_)) Constrain(found);
  return OkStatus();
}

bool Submission::MayCall() const {
  const auto& request = std::get<Conversation>(generation_request_.prompts[0]).tools;
  return !request.tools.empty() && request.choice.mode != chat::ToolChoice::Mode::kNone;
}

bool Submission::MayCallLeniently() const {
  const auto& choice = std::get<Conversation>(generation_request_.prompts[0]).tools.choice;
  return MayCall() && choice.mode == chat::ToolChoice::Mode::kAuto &&
         !generation_request_.grammar.has_value() && service_->reloadable()->config.lenient_calls;
}

Result<std::optional<GrammarSpec>> Submission::GrammarOfParts(bool any_arguments) const {
  return chat::GrammarOfAnswer(
      *service_->output_format(),
      {.in_reasoning = in_reasoning_,
       .may_reason = may_reason_,
       .continues = continues_,
       .tools = std::get<Conversation>(generation_request_.prompts[0]).tools,
       .any_arguments = any_arguments,
       .answer = generation_request_.grammar});
}

Status Submission::Compile() {
  RETURN_IF_ERROR(service_->Readiness());
  Status held = CompileOne(*grammar_);
  // If the schemas together are too large, the grammar keeps the format of calls and allows any
  // object as arguments.
  const bool too_much =
      generation_request_.in_parts && MayCall() && held.code() == StatusCode::kInvalidArgument;
  if (!too_much) return held;
  ASSIGN_OR_RETURN(const auto looser, GrammarOfParts(true));
  const Status looser_held = CompileOne(*looser);
  const bool later = looser_held.code() == StatusCode::kResourceExhausted;
  return looser_held.ok() || later ? looser_held : held;
}

Status Submission::CompileOne(const GrammarSpec& spec) {
  ASSIGN_OR_RETURN(const auto compiled, service_->engine()->Compile(spec));
  Constrain(compiled);
  return OkStatus();
}

void Submission::Constrain(const std::shared_ptr<const grammar::CompiledGrammar>& grammar) {
  for (Request& request : requests_) request.sampling.constraint = grammar;
  grammar_.reset();
}

Result<std::shared_ptr<Generation>> Submission::Start(std::function<void()> on_ready) {
  RETURN_IF_ERROR(service_->Readiness());
  auto generation = Generation::Start(*service_,
                                      {.id = sender_.id,
                                       .requests = std::move(requests_),
                                       .choices = generation_request_.choices,
                                       .arrived = sender_.arrived},
                                      &place_, std::move(on_ready));
  if (generation.ok() || generation.status().field() != "prompt") return generation;
  return generation.status().WithField(generation_request_.prompt_field);
}

}  // namespace thermocline::server
