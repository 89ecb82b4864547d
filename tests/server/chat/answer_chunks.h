// Parses an answer in chunks of any size, for tests that compare the results.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/chat/output_parser.h"

namespace thermocline::chat {

struct ParsedAnswer {
  WholeMessage message;
  CallTally tally;
  int fragments = 0;  // pieces of arguments of the first call

  // Everything but ids and chunks, as text.
  std::string Described() const {
    std::string out = "text: " + message.text + "\nreasoning: " + message.reasoning;
    for (const ToolCall& call : message.calls) out += "\ncall: " + call.name + " " + call.arguments;
    return out + "\nform: " + CallFormName(tally.form) + "\nrule: " + CallRuleName(tally.rejected);
  }
};

// Tools that a model may call.
inline std::vector<Tool> WeatherTools() {
  return {{.name = "get_weather",
           .description = "Weather",
           .parameters = *base::ParseJson(
               R"({"type": "object", "properties": {"city": {"type": "string"},
               "days": {"type": ["integer", "string"]}, "more": {"type": "object"}},
               "required": ["city"]})")},
          {.name = "now", .description = "Time"},
          {.name = "echo",
           .description = "Repeats",
           .parameters = *base::ParseJson(
               R"({"type": "object", "properties": {"text": {"type": "string"}}})")}};
}

// `bytes`: of each chunk. `cut`: a limit ended the answer.
inline ParsedAnswer ParseAnswer(const std::shared_ptr<const OutputParserConfig>& config,
                                std::string_view text, std::size_t bytes, bool cut = false) {
  OutputParser parser(config);
  std::vector<MessagePart> parts;
  for (std::size_t at = 0; at < text.size(); at += bytes)
    parser.Push(text.substr(at, bytes), parts);
  parser.Finish(cut, parts);
  ParsedAnswer out{.message = {}, .tally = parser.tally()};
  out.message.Add(parts);
  for (const MessagePart& part : parts)
    out.fragments += part.kind == MessagePart::Kind::kCallArguments && part.call == 0 ? 1 : 0;
  return out;
}

// The configuration for an answer with lenient calls of WeatherTools.
inline std::shared_ptr<OutputParserConfig> LenientConfig(OutputFormat format) {
  return std::make_shared<OutputParserConfig>(
      OutputParserConfig{.format = std::make_shared<const OutputFormat>(std::move(format)),
                         .calls = true,
                         .lenient = true,
                         .tools = WeatherTools()});
}

// Formats of four kinds: tagged JSON, an object at the answer's start, a mark with a name behind
// it, tags for each argument.
inline std::vector<OutputFormat> SmallFormats() {
  using Kind = CallPiece::Kind;
  const CallPiece name{.kind = Kind::kName}, arguments{.kind = Kind::kArguments};
  const auto text = [](const char* of) { return CallPiece{.kind = Kind::kText, .text = of}; };
  OutputFormat hermes, llama, mistral, qwen;
  hermes.calls.first = {text("<tool_call>\n{\"name\": \""), name, text("\", \"arguments\": "),
                        arguments, text("}\n</tool_call>")};
  hermes.calls.next = hermes.calls.first;
  hermes.calls.next[0].text.insert(0, "\n");
  hermes.calls.trigger = "<tool_call>";
  hermes.reasoning = {.open = "<think>", .close = "</think>"};
  hermes.call_ends_thought = true;
  llama.calls.first = {text("{\"name\": \""), name, text("\", \"parameters\": "), arguments,
                       text("}")};
  llama.calls.trigger = "{\"name\"";
  llama.calls.at_start = true;
  mistral.calls.first = {text("[TOOL_CALLS]"), name, text("[ARGS]"), arguments};
  mistral.calls.next = mistral.calls.first;
  mistral.calls.trigger = "[TOOL_CALLS]";
  qwen.calls.first = {text("<tool_call>\n<function="), name, text(">\n"), arguments,
                      text("</function>\n</tool_call>")};
  qwen.calls.trigger = "<tool_call>";
  qwen.calls.tagged =
      TaggedArguments{.open = "<parameter=",
                      .empty = "",
                      .text = {">\n", "\n</parameter>\n<parameter=", "\n</parameter>\n"},
                      .other = {">\n", "\n</parameter>\n<parameter=", "\n</parameter>\n"}};
  return {hermes, llama, mistral, qwen, OutputFormat()};
}

}  // namespace thermocline::chat
