#include "server/grpc/generate_request.h"

#include <algorithm>
#include <utility>

#include "engine/base/random.h"
#include "server/core/request_limits.h"
#include "server/grpc/refusal.h"

namespace thermocline::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Reads fields and keeps the first error.
class Reader {
 public:
  void Fail(const std::string& field, const std::string& message) {
    if (status_.ok()) status_ = BadField(field, message);
  }
  const Status& status() const { return status_; }

  // Returns `value`; records an error if it is outside `range` or NaN.
  double In(Range range, double value, const std::string& field) {
    if (!(value >= range.min && value <= range.max)) {
      Fail(field,
           StrCat(field, " is ", value, "; it must lie in [", range.min, ", ", range.max, "]"));
      return range.min;
    }
    return value;
  }
  // Copies the number `field` of `message` into `out`, if it is present. `path`: the field's name
  // in the request.
  void Read(const Message& message, const FieldDescriptor& field, const char* path, Range range,
            double& out) {
    const auto* fields = message.GetReflection();
    if (!fields->HasField(message, &field)) return;
    const double value = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
                             ? fields->GetDouble(message, &field)
                             : fields->GetInt32(message, &field);
    out = In(range, value, path);
  }
  template <typename Number>
  void Read(const Message& message, const char* name, const std::string& prefix, Range range,
            Number& out) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
    CHECK(field != nullptr);
    double value = static_cast<double>(out);
    Read(message, *field, (prefix + name).c_str(), range, value);
    out = static_cast<Number>(value);
  }

 private:
  Status status_;
};

std::vector<std::string> ReadStrings(const google::protobuf::RepeatedPtrField<std::string>& list,
                                     const std::string& field, std::size_t count_max,
                                     std::size_t bytes_max, Reader& reader) {
  if (std::cmp_greater(list.size(), count_max)) {
    reader.Fail(field, StrCat(field, " has ", list.size(), " entries; at most ", count_max,
                              " are allowed"));
    return {};
  }
  for (const std::string& entry : list) {
    if (entry.empty() || entry.size() > bytes_max) {
      reader.Fail(field, StrCat(field, ": each entry must have 1 to ", bytes_max, " bytes, not ",
                                entry.size()));
    }
  }
  return {list.begin(), list.end()};
}

// The message and the field at `path`, such as "sampling.dry.base"; nullptr if a message on the
// path is absent.
std::pair<const Message*, const FieldDescriptor*> At(const Message& message,
                                                     std::string_view path) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  CHECK(field != nullptr);
  if (dot == std::string_view::npos) return {&message, field};
  if (!message.GetReflection()->HasField(message, field)) return {nullptr, nullptr};
  return At(message.GetReflection()->GetMessage(message, field), path.substr(dot + 1));
}

void ReadBreakers(const v1::Dry& dry, Request& out, Reader& reader) {
  if (dry.sequence_breakers().empty()) return;
  out.dry_breakers = ReadStrings(dry.sequence_breakers(), "sampling.dry.sequence_breakers",
                                 server::kDryBreakersMax, server::kDryBreakerBytesMax, reader);
}

void ReadLogitBias(const v1::Sampling& sampling, SamplingParams& out, Reader& reader) {
  const std::string field = "sampling.logit_bias";
  if (sampling.logit_bias().size() > server::kLogitBiasMax) {
    return reader.Fail(field, StrCat(field, " has ", sampling.logit_bias().size(),
                                     " entries; at most ", server::kLogitBiasMax, " are allowed"));
  }
  for (const auto& [token, bias] : sampling.logit_bias()) {
    reader.In(server::kLogitBiasRange, bias, StrCat(field, "[", token, "]"));
    if (token < 0) reader.Fail(field, StrCat(field, ": ", token, " is no token id"));
    out.logit_bias.emplace_back(token, bias);
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end());  // maps have no defined order
}

void ReadSampling(const v1::GenerateRequest& request, Request& out, Reader& reader) {
  for (const SamplingField& field : SamplingFields()) {
    const auto [message, descriptor] = At(request, field.grpc);
    double value = field.Get(out.sampling);
    if (message == nullptr) continue;
    reader.Read(*message, *descriptor, field.grpc, field.range, value);
    field.Set(out.sampling, value);
  }
  const v1::Sampling& message = request.sampling();
  ReadBreakers(message.dry(), out, reader);
  ReadLogitBias(message, out.sampling, reader);
  out.sampling.seed = message.has_seed() ? message.seed() : base::RandomBits64();
}

void ReadStop(const v1::Stop& message, Request& out, Reader& reader) {
  reader.Read(message, "max_tokens", "stop.", {1, INT32_MAX}, out.max_tokens);
  if (message.has_max_tokens() && out.sampling.min_tokens > out.max_tokens) {
    reader.Fail("stop.min_tokens", StrCat("stop.min_tokens is ", out.sampling.min_tokens,
                                          ", more than stop.max_tokens, ", out.max_tokens));
  }
  auto stops = message.stop();
  // An empty text would stop nothing.
  stops.erase(std::remove(stops.begin(), stops.end(), ""), stops.end());
  out.stop = ReadStrings(stops, "stop.stop", server::kStopsMax, server::kStopBytesMax, reader);
  if (std::cmp_greater(message.stop_token_ids_size(), server::kStopTokensMax)) {
    reader.Fail("stop.stop_token_ids",
                StrCat("stop.stop_token_ids has ", message.stop_token_ids_size(),
                       " entries; at most ", server::kStopTokensMax, " are allowed"));
  }
  out.stop_tokens.assign(message.stop_token_ids().begin(), message.stop_token_ids().end());
  out.ignore_eos = message.ignore_eos();
}

void ReadResponse(const v1::ResponseOptions& message, GenerateParams& out, Reader& reader) {
  int top = 0;
  reader.Read(message, "top_logprobs", "response.", {0, kLogprobsMax}, top);
  if (top > 0 && !message.logprobs()) {
    reader.Fail("response.top_logprobs", "response.top_logprobs needs response.logprobs");
  }
  out.generation.request.logprobs = message.logprobs() ? top : -1;
  out.generation.request.progress = message.progress();
  out.return_tokens = message.token_ids();
}

void ReadModes(const v1::GenerateRequest& message, Request& out, Reader& reader) {
  if (message.ffn_mode().size() > server::kFfnModeBytesMax) {
    reader.Fail("ffn_mode", StrCat("ffn_mode has ", message.ffn_mode().size(), " bytes; at most ",
                                   server::kFfnModeBytesMax, " are allowed"));
  }
  out.ffn_mode = message.ffn_mode();
  reader.Read(message, "kl_max", "", server::kKlMaxRange, out.kl_max);
  if (const std::string& name = message.speculation().mode(); !name.empty()) {
    const auto mode = ParseSpecMode(name);
    if (mode.ok()) {
      out.spec_mode = *mode;
    } else {
      reader.Fail("speculation.mode", StrCat("speculation.mode ", mode.status().message()));
    }
  }
  reader.Read(message.speculation(), "draft_tokens", "speculation.", {0, kDraftTokensMax},
              out.spec_tokens);
}

void ReadStructuredOutput(const v1::StructuredOutput& message, GenerateParams& out,
                          Reader& reader) {
  using Kind = GrammarSpec::Kind;
  const std::string prefix = "structured_output.";
  switch (message.kind_case()) {
    case v1::StructuredOutput::kJsonObject:
      if (message.json_object())
        out.generation.grammar = {.kind = Kind::kJsonObject, .field = prefix + "json_object"};
      return;
    case v1::StructuredOutput::kJsonSchema:
      out.generation.grammar = {.kind = Kind::kJsonSchema,
                                .text = message.json_schema(),
                                .field = prefix + "json_schema"};
      return;
    case v1::StructuredOutput::kRegex:
      out.generation.grammar = {
          .kind = Kind::kRegex, .text = message.regex(), .field = prefix + "regex"};
      return;
    case v1::StructuredOutput::kChoice:
      out.generation.grammar = {
          .kind = Kind::kChoice,
          .choices = ReadStrings(message.choice().texts(), prefix + "choice.texts",
                                 server::kChoiceTextsMax, server::kChoiceBytesMax, reader),
          .field = prefix + "choice"};
      return;
    case v1::StructuredOutput::kGrammar:
      out.generation.grammar = {
          .kind = Kind::kGbnf, .text = message.grammar(), .field = prefix + "grammar"};
      return;
    case v1::StructuredOutput::KIND_NOT_SET:
      break;
  }
  reader.Fail("structured_output",
              "structured_output must be one of json_object, json_schema, regex, choice, grammar");
}

Result<server::Prompt> ReadPrompt(const v1::GenerateRequest& message) {
  switch (message.input_case()) {
    case v1::GenerateRequest::kText:
      return server::Prompt(message.text());
    case v1::GenerateRequest::kTokenIds: {
      const auto& ids = message.token_ids().ids();
      return server::Prompt(std::vector<int>(ids.begin(), ids.end()));
    }
    case v1::GenerateRequest::kChat: {
      ASSIGN_OR_RETURN(server::Conversation conversation, ParseChat(message.chat()));
      return server::Prompt(std::move(conversation));
    }
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return BadField("input", "one of text, token_ids and chat must be given");
}

const char* PromptField(const v1::GenerateRequest& message) {
  return message.has_text() ? "text" : message.has_chat() ? "chat" : "token_ids";
}

}  // namespace

Result<GenerateParams> ParseGenerate(const v1::GenerateRequest& message,
                                     const GenerateDefaults& defaults) {
  Reader reader;
  GenerateParams out;
  server::GenerationRequest& generation = out.generation;
  ASSIGN_OR_RETURN(server::Prompt prompt, ReadPrompt(message));
  generation.prompts.push_back(std::move(prompt));
  generation.prompt_field = PromptField(message);
  generation.model = message.model();
  generation.request.sampling = defaults.sampling;
  generation.request.max_tokens = defaults.max_tokens;
  ReadSampling(message, generation.request, reader);
  ReadStop(message.stop(), generation.request, reader);
  ReadResponse(message.response(), out, reader);
  ReadModes(message, generation.request, reader);
  if (message.has_structured_output())
    ReadStructuredOutput(message.structured_output(), out, reader);
  reader.Read(message, "n", "", {1, server::kChoicesPerPromptMax}, generation.choices);
  reader.Read(message, "priority", "", {kPriorityMin, kPriorityMax}, generation.request.priority);
  reader.Read(message, "timeout_s", "", {0, server::kTimeoutMax}, generation.timeout_s);
  if (message.has_timeout_s() && generation.timeout_s == 0)
    reader.Fail("timeout_s", "timeout_s must be above 0");
  RETURN_IF_ERROR(reader.status());
  return out;
}

Result<server::Conversation> ParseChat(const v1::Chat& chat) {
  static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user",
                                                             "assistant", "tool"};
  if (chat.messages().empty())
    return BadField("chat.messages", "chat.messages must have at least one message");
  if (std::cmp_greater(chat.messages_size(), server::kMessagesMax)) {
    return BadField("chat.messages",
                    StrCat("chat.messages has ", chat.messages_size(), " entries; at most ",
                           server::kMessagesMax, " are allowed"));
  }
  Json::Array messages;
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    if (std::find(kRoles.begin(), kRoles.end(), message.role()) == kRoles.end()) {
      return BadField("chat.messages",
                      StrCat("chat.messages[", i,
                             "].role must be one of system, developer, user, assistant, tool"));
    }
    Json entry{Json::Object{{"role", message.role() == "developer" ? "system" : message.role()},
                            {"content", message.content()}}};
    if (message.has_name()) entry.Set("name", message.name());
    if (message.has_tool_call_id()) entry.Set("tool_call_id", message.tool_call_id());
    messages.push_back(std::move(entry));
  }
  return server::Conversation{.json = Json::Object{{"messages", std::move(messages)}}};
}

}  // namespace thermocline::rpc
