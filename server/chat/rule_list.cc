#include "server/chat/rule_list.h"

#include <algorithm>
#include <memory>

#include "engine/base/strings.h"

namespace thermocline::chat {

void RuleList::AddText(const std::string& name, std::vector<std::string> stops, bool at_start) {
  std::erase_if(stops, [this](const std::string& stop) { return IsControl(stop); });
  parts_.push_back({.name = name, .stops = std::move(stops), .at_start = at_start});
}

void RuleList::AddPart(const std::string& name, const GrammarSpec& spec, bool lenient) {
  bytes_ += spec.text.size();
  parts_.push_back(
      {.name = name, .spec = std::make_shared<const GrammarSpec>(spec), .lenient = lenient});
}

void RuleList::AddSchema(const std::string& name, Json schema, bool lenient) {
  if (any_arguments_ && lenient) {
    const Json* type = schema.Find("type");
    const bool object = type != nullptr && type->is_string() && type->as_string() == "object";
    schema = object ? Json(Json::Object{{"type", "object"}}) : Json(Json::Object{});
  }
  AddPart(name, {.kind = GrammarSpec::Kind::kJsonSchema, .text = schema.Dump(), .field = "tools"},
          lenient);
}

void RuleList::AddString(const std::string& name, const Json& schema,
                         std::vector<std::string> stops, std::vector<std::string> except,
                         bool quoted, bool lenient) {
  std::erase_if(stops, [this](const std::string& stop) { return IsControl(stop); });
  const Json any = Json::Object{{"type", "string"}};
  const bool free = any_arguments_ && lenient;
  for (const std::string& each : except) bytes_ += each.size();
  parts_.push_back({.name = name,
                    .spec = std::make_shared<const GrammarSpec>(
                        GrammarSpec{.kind = GrammarSpec::Kind::kJsonSchema,
                                    .text = (free ? any : schema).Dump(),
                                    .field = "tools"}),
                    .stops = std::move(stops),
                    .bare = true,
                    .except = std::move(except),
                    .quote = quoted ? format_.calls.tagged->quote : '\0',
                    .lenient = lenient});
}

bool RuleList::IsControl(const std::string& text) const {
  return std::any_of(format_.control_tokens.begin(), format_.control_tokens.end(),
                     [&](const auto& token) { return token.first == text; });
}

std::string RuleList::Literal(const std::string& text) const {
  std::string out, plain;
  const auto flush = [&] {
    if (!plain.empty()) out += StrCat(out.empty() ? "" : " ", "\"", plain, "\"");
    plain.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto token = std::find_if(
        format_.control_tokens.begin(), format_.control_tokens.end(),
        [&](const auto& each) { return text.compare(at, each.first.size(), each.first) == 0; });
    if (token != format_.control_tokens.end()) {
      flush();
      out += StrCat(out.empty() ? "" : " ", "<[", token->second, "]>");
      at += token->first.size();
      continue;
    }
    const char c = text[at++];
    if (c == '"' || c == '\\') plain += '\\';
    if (c == '\n') {
      plain += "\\n";
    } else if (c == '\r') {
      plain += "\\r";
    } else {
      plain += c;
    }
  }
  flush();
  return out.empty() ? "\"\"" : out;
}

GrammarSpec RuleList::Take(std::string field) {
  std::string text;
  for (const auto& [name, body] : rules_) text += StrCat(name, " ::= ", body, "\n");
  return {.kind = GrammarSpec::Kind::kGbnf,
          .text = std::move(text),
          .field = std::move(field),
          .parts = std::move(parts_)};
}

}  // namespace thermocline::chat
