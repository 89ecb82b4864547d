#include "engine/text/chat_template.h"

#include <algorithm>
#include <array>

#include "engine/model/vocabulary.h"
#include "engine/text/jinja_interpreter.h"

namespace thermocline::text {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

// Marks the known roles of messages as the template's own text.
void TrustRoles(const jinja::Value& messages) {
  if (!messages.is_list()) return;
  for (jinja::Value& message : messages.list()) {
    const jinja::Value* role = message.is_dict() ? message.FindKey("role") : nullptr;
    if (role == nullptr || !role->is_string()) continue;
    const std::string text = role->as_string();
    if (std::find(kRoles.begin(), kRoles.end(), text) != kRoles.end())
      message.SetItem("role", jinja::Value::MakeOwn(text));
  }
}

// Bytes of the texts and values in `json`, as values of the template.
std::size_t BytesOf(const Json& json) {
  std::size_t bytes = sizeof(jinja::Value);
  if (json.is_string()) bytes += json.as_string().size();
  if (json.is_array())
    for (const Json& item : json.as_array()) bytes += BytesOf(item);
  if (json.is_object())
    for (const auto& [name, item] : json.as_object())
      bytes += sizeof(jinja::Value) + name.size() + BytesOf(item);
  return bytes;
}

// Bytes that a rendering may hold beside its data: a template copies its messages a few times.
std::size_t HeldMax(std::size_t data_bytes) {
  constexpr std::size_t kOfTemplate = 1 << 20, kCopies = 10;
  return kOfTemplate + kCopies * data_bytes;
}

// Steps of a rendering: a message takes some hundreds, and has some hundred bytes as values.
std::int64_t StepsMax(std::size_t data_bytes) {
  constexpr std::int64_t kOfTemplate = 50'000, kOfByte = 16;
  const std::int64_t most = jinja::Limits{}.steps;
  return std::min(most, kOfTemplate + kOfByte * static_cast<std::int64_t>(data_bytes));
}

jinja::Value OwnFromJson(const Json& value) {
  return value.is_string() ? jinja::Value::MakeOwn(value.as_string())
                           : jinja::Value::FromJson(value);
}

class JinjaTemplate final : public ChatTemplate {
 public:
  explicit JinjaTemplate(jinja::Body body) : body_(std::move(body)) {}

  Result<TemplateText> Render(const Json& data, const Json& own,
                              std::size_t bytes_max) const override {
    const std::size_t data_bytes = BytesOf(data);
    jinja::Interpreter interpreter{
        jinja::Limits{.steps = StepsMax(data_bytes), .output_bytes = bytes_max}};
    for (const auto& [name, value] : data.as_object()) {
      const jinja::Value variable = jinja::Value::FromJson(value);
      if (name == "messages") TrustRoles(variable);
      interpreter.SetGlobal(name, variable);
    }
    for (const auto& [name, value] : own.as_object())
      interpreter.SetGlobal(name, OwnFromJson(value));
    auto text = RenderHolding(interpreter, HeldMax(data_bytes));
    if (!text.ok()) return text.status().Annotate("chat template");
    return text;
  }

 private:
  // ResourceExhausted: texts and values that exist at once take more than `bytes_max`.
  Result<TemplateText> RenderHolding(jinja::Interpreter& interpreter, std::size_t bytes_max) const {
    try {
      const HeldMemory memory(bytes_max);
      return interpreter.Render(body_);
    } catch (const HeldMemory::Exceeded&) {
      return base::ResourceExhausted("the chat template holds more than ", bytes_max,
                                     " bytes beside its messages");
    }
  }

  jinja::Body body_;
};

}  // namespace

Result<std::string> ChatTemplate::Render(const Json& variables) const {
  ASSIGN_OR_RETURN(const TemplateText text,
                   Render(variables, Json(Json::Object{}), kRenderedBytesMax));
  return text.bytes();
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (source.size() > model::kTemplateBytesMax)
    return base::InvalidArgument("the chat template has ", source.size(), " bytes; at most ",
                                 model::kTemplateBytesMax, " are read");
  auto body = jinja::Parse(source);
  if (!body.ok()) return body.status().Annotate("chat template");
  return std::unique_ptr<ChatTemplate>(new JinjaTemplate(*std::move(body)));
}

}  // namespace thermocline::text
