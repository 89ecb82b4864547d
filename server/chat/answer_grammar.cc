#include "server/chat/answer_grammar.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/strings.h"

namespace thermocline::chat {
namespace {

using Kind = CallPiece::Kind;
using Mode = ToolChoice::Mode;

// Of one answer: small models do not always find an end.
constexpr int kCallsMax = 16;

// Writes the rules of one answer.
class Writer {
 public:
  Writer(const OutputFormat& format, const AnswerRules& rules) : format_(format), rules_(rules) {}

  Result<std::optional<GrammarSpec>> Run() {
    const Mode mode = rules_.tools.choice.mode;
    const bool tools = !rules_.tools.tools.empty();
    const bool calls = tools && mode != Mode::kNone;
    if (calls && !format_.calls.known() && !format_.harmony)
      return base::Unimplemented("this model's chat template has no form for calls of tools")
          .WithField("tools");
    if (!calls && !rules_.answer.has_value() && !(tools && NeedsGuard())) return Nothing();
    if (format_.harmony) {
      WriteHarmony(calls);
    } else {
      WriteRoot(calls);
    }
    std::string text;
    for (const auto& [name, body] : rules_out_) text += StrCat(name, " ::= ", body, "\n");
    return std::optional<GrammarSpec>({.kind = GrammarSpec::Kind::kGbnf,
                                       .text = std::move(text),
                                       .field = FieldOf(),
                                       .parts = std::move(parts_)});
  }

 private:
  static Result<std::optional<GrammarSpec>> Nothing() { return std::optional<GrammarSpec>(); }
  // Whether text must be kept from becoming a call.
  bool NeedsGuard() const { return format_.calls.known() && !format_.calls.trigger.empty(); }
  std::string FieldOf() const { return rules_.answer.has_value() ? rules_.answer->field : "tools"; }

  void WriteRoot(bool calls) {
    const bool must_call = calls && rules_.tools.choice.mode == Mode::kRequired;
    std::string body;
    if (calls) {
      Rule("calls", WriteCalls());
      body = "calls";
    }
    if (!must_call) {
      const std::string text = WriteText(calls);
      body = !calls                      ? text
             : rules_.answer.has_value() ? StrCat("(", text, " | ", body, ")")
             : format_.calls.at_start    ? StrCat("(", text, " | ", body, ")")
                                         : StrCat(text, " (", body, ")?");
    }
    Rule("root", WithReasoning(body, calls));
  }

  // `body` behind the reasoning that may come before it. With `calls` and Qwen's tags, a call
  // within the reasoning ends it.
  std::string WithReasoning(const std::string& body, bool calls) {
    const ReasoningTags& tags = format_.reasoning;
    if (!tags.known() || (!rules_.in_reasoning && !rules_.may_reason)) return body;
    const bool called = calls && format_.call_ends_thought && !IsControl(format_.calls.trigger);
    std::vector<std::string> stops = {tags.close};
    if (called) stops.push_back(format_.calls.trigger);
    FreeText("reasoning", std::move(stops), false);
    Rule("answer-body", body);
    std::string thought = StrCat("reasoning ", Literal(tags.close), " [ \\n]{0,4} answer-body");
    if (called)
      thought = StrCat("reasoning (", Literal(tags.close), " [ \\n]{0,4} answer-body | calls)");
    if (rules_.in_reasoning) return thought;
    return StrCat("(", Literal(tags.open), " ", thought, " | answer-body)");
  }

  // The answer's text, which holds no call.
  std::string WriteText(bool calls) {
    const bool marked = !format_.content_open.empty() && !rules_.continues;
    std::string open = marked ? Literal(format_.content_open) + " " : "",
                close = format_.content_close.empty() ? "" : " " + Literal(format_.content_close);
    if (!close.empty()) close = StrCat(" (", close, ")?");
    if (rules_.answer.has_value()) {
      Part("answer", *rules_.answer, false);
      return StrCat(open, "answer", close);
    }
    std::vector<std::string> stops;
    if ((calls || !rules_.tools.tools.empty()) && NeedsGuard() && !IsControl(format_.calls.trigger))
      stops.push_back(format_.calls.trigger);
    FreeText("text", stops, format_.calls.at_start);
    return StrCat(open, "text", close);
  }

  std::string WriteCalls() {
    const CallFormat& calls = format_.calls;
    WriteArguments();
    Rule("call", Pieces(calls.first));
    std::string body = "call";
    const ToolChoice& choice = rules_.tools.choice;
    if (!calls.next.empty() && choice.parallel && choice.name.empty()) {
      Rule("further", Pieces(calls.next));
      body += StrCat(" further{0,", kCallsMax - 1, "}");
    }
    if (!calls.end.empty()) body += " " + Literal(calls.end);
    return body;
  }

  // The tools that may be called.
  std::vector<const Tool*> Callable() const {
    std::vector<const Tool*> out;
    const std::string& only = rules_.tools.choice.name;
    for (const Tool& tool : rules_.tools.tools)
      if (only.empty() || tool.name == only) out.push_back(&tool);
    return out;
  }

  void WriteArguments() {
    int index = 0;
    for (const Tool* tool : Callable()) {
      const std::string name = StrCat("arguments-", index);
      if (format_.calls.tagged.has_value()) {
        Rule(name, Tagged(*tool, index));
      } else {
        Schema(name, SchemaOf(*tool), !tool->strict);
      }
      ++index;
    }
  }

  // A tool that lists no parameter has none: small models invent some without end.
  static Json SchemaOf(const Tool& tool) {
    const bool given = tool.parameters.is_object();
    Json schema = given ? tool.parameters : Json(Json::Object{});
    if (schema.Find("type") == nullptr) schema.Set("type", "object");
    const Json* properties = schema.Find("properties");
    const bool none = !given || (properties != nullptr && properties->is_object() &&
                                 properties->as_object().empty());
    const bool open = schema.Find("additionalProperties") != nullptr ||
                      schema.Find("patternProperties") != nullptr ||
                      schema.Find("$ref") != nullptr || schema.Find("allOf") != nullptr ||
                      schema.Find("anyOf") != nullptr || schema.Find("oneOf") != nullptr;
    if (none && !open) schema.Set("additionalProperties", false);
    return schema;
  }

  // From the name to the arguments there is a way for each tool; what is around them all share.
  std::string Pieces(const CallPieces& pieces) {
    const auto is = [](Kind kind) {
      return [kind](const CallPiece& piece) { return piece.kind == kind; };
    };
    const auto name = std::find_if(pieces.begin(), pieces.end(), is(Kind::kName)),
               arguments = std::find_if(pieces.begin(), pieces.end(), is(Kind::kArguments));
    std::string body = Sequence(pieces.begin(), name);
    const std::string between = Sequence(name + 1, arguments);
    std::string ways;
    int index = 0;
    for (const Tool* tool : Callable()) {
      ways +=
          StrCat(index > 0 ? " | " : "", Literal(tool->name), " ", between, " arguments-", index);
      ++index;
    }
    return StrCat(body, " (", ways, ") ", Sequence(arguments + 1, pieces.end()));
  }

  std::string Sequence(CallPieces::const_iterator at, CallPieces::const_iterator end) const {
    std::string out;
    for (; at != end; ++at) {
      if (at->kind == Kind::kText) out += " " + Literal(at->text);
      if (at->kind == Kind::kId) out += " [a-zA-Z0-9]{9}";
      if (at->kind == Kind::kIndex) out += " [0-9]{1,4}";
    }
    return out;
  }

  // Keys in the schema's order; those that are not required may be left out. One rule for each key:
  // what may come from there on.
  std::string Tagged(const Tool& tool, int tool_index) {
    const TaggedArguments& tagged = *format_.calls.tagged;
    const Json schema = SchemaOf(tool);
    const Json* properties = schema.Find("properties");
    std::vector<std::pair<std::string, Json>> keys;
    if (properties != nullptr && properties->is_object())
      for (const auto& [key, value] : properties->as_object()) keys.emplace_back(key, value);
    // The rule "rest-I-N-x": behind a value of the kind x, keys from N on.
    const auto required_from = [&](std::size_t from) {
      for (std::size_t i = from; i < keys.size(); ++i)
        if (IsRequired(schema, keys[i].first)) return true;
      return false;
    };
    const auto rest_name = [&](std::size_t from, bool text) {
      return StrCat("rest-", tool_index, "-", from, text ? "-t" : "-o");
    };
    // KEY open VALUE rest, for the keys that may come next.
    const auto ways = [&](std::size_t from, const std::string& lead) {
      std::string out;
      for (std::size_t i = from; i < keys.size(); ++i) {
        out += StrCat(out.empty() ? "" : " | ", lead, Literal(keys[i].first), " ",
                      Value(tool, tool_index, i, keys[i].first), " ",
                      rest_name(i + 1, IsText(schema, keys[i].first)));
        if (IsRequired(schema, keys[i].first)) break;
      }
      return out;
    };
    for (std::size_t from = 1; from <= keys.size(); ++from) {
      for (const bool text : {true, false}) {
        const ValueMarks& marks = text ? tagged.text : tagged.other;
        std::string body = ways(from, Literal(marks.next) + " ");
        if (!required_from(from)) body += StrCat(body.empty() ? "" : " | ", Literal(marks.close));
        Rule(rest_name(from, text), body);
      }
    }
    std::string body = ways(0, Literal(tagged.open) + " ");
    if (!required_from(0)) body += StrCat(body.empty() ? "" : " | ", Literal(tagged.empty));
    return body;
  }

  static bool IsRequired(const Json& schema, const std::string& key) {
    const Json* required = schema.Find("required");
    if (required == nullptr || !required->is_array()) return false;
    const Json::Array& list = required->as_array();
    return std::any_of(list.begin(), list.end(), [&](const Json& each) {
      return each.is_string() && each.as_string() == key;
    });
  }

  static bool IsText(const Json& schema, const std::string& key) {
    return TypeOfParameter(schema, key) == "string";
  }

  // A value with the mark before it.
  std::string Value(const Tool& tool, int tool_index, std::size_t index, const std::string& key) {
    const TaggedArguments& tagged = *format_.calls.tagged;
    const std::string name = StrCat("value-", tool_index, "-", index);
    const Json parameters = SchemaOf(tool);
    Json schema = ParameterSchema(parameters, key);
    if (!IsText(parameters, key)) {
      Schema(name, std::move(schema), !tool.strict);
      return StrCat(Literal(tagged.other.open), " ", name);
    }
    if (rules_.any_arguments && !tool.strict) schema = Json::Object{{"type", "string"}};
    std::vector<std::string> stops;
    if (tagged.quote == '\0' && !IsControl(tagged.TextEnd())) stops = {tagged.TextEnd()};
    parts_.push_back(
        {.name = name,
         .spec = std::make_shared<const GrammarSpec>(GrammarSpec{
             .kind = GrammarSpec::Kind::kJsonSchema, .text = schema.Dump(), .field = "tools"}),
         .stops = std::move(stops),
         .bare = true,
         .quote = tagged.quote,
         .lenient = !tool.strict});
    return StrCat(Literal(tagged.text.open), " ", name);
  }

  // gpt-oss: messages of the channels analysis, commentary and final.
  void WriteHarmony(bool calls) {
    const auto literal = [this](const std::string& text) { return Literal(text); };
    FreeText("text", {"<|"}, false);
    const std::string again = StrCat(literal("<|end|><|start|>assistant"));
    std::string final_text = "text";
    if (rules_.answer.has_value()) {
      Part("answer", *rules_.answer, false);
      final_text = "answer";
    }
    if (rules_.continues) return Rule("root", final_text);
    Rule("analysis", StrCat(literal("<|channel|>analysis<|message|>"), " text ", again));
    std::string body;
    if (!calls || rules_.tools.choice.mode != Mode::kRequired)
      body = StrCat(literal("<|channel|>final<|message|>"), " ", final_text);
    if (calls) {
      std::string ways;
      int index = 0;
      for (const Tool* tool : Callable()) {
        const std::string name = StrCat("arguments-", index++);
        Schema(name, SchemaOf(*tool), !tool->strict);
        ways += StrCat(ways.empty() ? "" : " | ", literal(tool->name), " tail ", name);
      }
      Rule("tail",
           StrCat("\" \"? (", literal("<|constrain|>"), "? \"json\")? ", literal("<|message|>")));
      Rule("preamble", StrCat(literal("<|channel|>commentary<|message|>"), " text ", again));
      body += StrCat(body.empty() ? "" : " | ", "preamble? ",
                     literal("<|channel|>commentary to=functions."), " (", ways, ")");
    }
    Rule("root", StrCat("analysis* (", body, ")"));
  }

  void Rule(const std::string& name, const std::string& body) {
    rules_out_.emplace_back(name, body);
  }
  void FreeText(const std::string& name, std::vector<std::string> stops, bool at_start) {
    std::erase_if(stops, [this](const std::string& stop) { return IsControl(stop); });
    parts_.push_back({.name = name, .stops = std::move(stops), .at_start = at_start});
  }
  void Part(const std::string& name, const GrammarSpec& spec, bool lenient) {
    parts_.push_back(
        {.name = name, .spec = std::make_shared<const GrammarSpec>(spec), .lenient = lenient});
  }
  void Schema(const std::string& name, Json schema, bool lenient) {
    if (rules_.any_arguments && lenient) {
      const Json* type = schema.Find("type");
      const bool object = type != nullptr && type->is_string() && type->as_string() == "object";
      schema = object ? Json(Json::Object{{"type", "object"}}) : Json(Json::Object{});
    }
    Part(name, {.kind = GrammarSpec::Kind::kJsonSchema, .text = schema.Dump(), .field = "tools"},
         lenient);
  }

  // Free text has no control tokens, whatever they are called.
  bool IsControl(const std::string& text) const {
    return std::any_of(format_.control_tokens.begin(), format_.control_tokens.end(),
                       [&](const auto& token) { return token.first == text; });
  }

  // Text between quotes, and the control tokens in it by their ids.
  std::string Literal(const std::string& text) const {
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

  const OutputFormat& format_;
  const AnswerRules& rules_;
  std::vector<std::pair<std::string, std::string>> rules_out_;
  std::vector<GrammarPart> parts_;
};

}  // namespace

Result<std::optional<GrammarSpec>> GrammarOfAnswer(const OutputFormat& format,
                                                   const AnswerRules& rules) {
  return Writer(format, rules).Run();
}

}  // namespace thermocline::chat
