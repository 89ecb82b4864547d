#include "engine/text/chat_template.h"

#include "engine/text/jinja_interpreter.h"

namespace thermocline::text {
namespace {

class JinjaTemplate final : public ChatTemplate {
 public:
  explicit JinjaTemplate(jinja::Body body) : body_(std::move(body)) {}

  Result<std::string> Render(const Json& variables) const override {
    jinja::Interpreter interpreter{jinja::Limits{}};
    for (const auto& [name, value] : variables.as_object())
      interpreter.SetGlobal(name, jinja::Value::FromJson(value));
    auto text = interpreter.Render(body_);
    if (!text.ok()) return text.status().Annotate("chat template");
    return text;
  }

 private:
  jinja::Body body_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  auto body = jinja::Parse(source);
  if (!body.ok()) return body.status().Annotate("chat template");
  return std::unique_ptr<ChatTemplate>(new JinjaTemplate(*std::move(body)));
}

}  // namespace thermocline::text
