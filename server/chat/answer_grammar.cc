#include "server/chat/answer_grammar.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/strings.h"
#include "server/chat/argument_forms.h"
#include "server/chat/rule_list.h"
#include "server/chat/tagged_grammar.h"

namespace thermocline::chat {
namespace {

using Kind = CallPiece::Kind;
using Mode = ToolChoice::Mode;

// Limits the calls of one answer, because small models may repeat calls without end.
constexpr int kCallsMax = 16;

// Writes the rules of one answer.
class Writer {
 public:
  Writer(const OutputFormat& format, const AnswerRules& rules)
      : format_(format), rules_(rules), list_(format, rules.any_arguments) {}

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
      RETURN_IF_ERROR(WriteRoot(calls));
    }
    return std::optional<GrammarSpec>(list_.Take(FieldOf()));
  }

 private:
  static Result<std::optional<GrammarSpec>> Nothing() { return std::optional<GrammarSpec>(); }
  // True if the grammar must keep text from turning into a call.
  bool NeedsGuard() const { return format_.calls.known() && !format_.calls.trigger.empty(); }
  std::string FieldOf() const { return rules_.answer.has_value() ? rules_.answer->field : "tools"; }

  Status WriteRoot(bool calls) {
    const bool must_call = calls && rules_.tools.choice.mode == Mode::kRequired;
    std::string body;
    if (calls) {
      RETURN_IF_ERROR(WriteArguments());
      list_.Add("calls", Calls());
      body = "calls";
    }
    if (!must_call) {
      const std::string text = WriteText(calls);
      body = !calls                      ? text
             : rules_.answer.has_value() ? StrCat("(", text, " | ", body, ")")
             : format_.calls.at_start    ? StrCat("(", text, " | ", body, ")")
                                         : StrCat(text, " (", body, ")?");
    }
    list_.Add("root", WithReasoning(body, calls));
    return OkStatus();
  }

  // `body`, preceded by optional reasoning. With `calls` and Qwen's tags, a call within the
  // reasoning ends it.
  std::string WithReasoning(const std::string& body, bool calls) {
    const ReasoningTags& tags = format_.reasoning;
    if (!tags.known() || (!rules_.in_reasoning && !rules_.may_reason)) return body;
    const bool called =
        calls && format_.call_ends_thought && !list_.IsControl(format_.calls.trigger);
    std::vector<std::string> stops = {tags.close};
    if (called) stops.push_back(format_.calls.trigger);
    list_.AddText("reasoning", std::move(stops), false);
    list_.Add("answer-body", body);
    std::string thought = StrCat("reasoning ", Literal(tags.close), " [ \\n]{0,4} answer-body");
    if (called)
      thought = StrCat("reasoning (", Literal(tags.close), " [ \\n]{0,4} answer-body | calls)");
    if (rules_.in_reasoning) return thought;
    return StrCat("(", Literal(tags.open), " ", thought, " | answer-body)");
  }

  // The answer's text, without a call in it.
  std::string WriteText(bool calls) {
    const bool marked = !format_.content_open.empty() && !rules_.continues;
    std::string open = marked ? Literal(format_.content_open) + " " : "",
                close = format_.content_close.empty() ? "" : " " + Literal(format_.content_close);
    if (!close.empty()) close = StrCat(" (", close, ")?");
    if (rules_.answer.has_value()) {
      list_.AddPart("answer", *rules_.answer, false);
      return StrCat(open, "answer", close);
    }
    std::vector<std::string> stops;
    if ((calls || !rules_.tools.tools.empty()) && NeedsGuard() &&
        !list_.IsControl(format_.calls.trigger))
      stops.push_back(format_.calls.trigger);
    list_.AddText("text", stops, format_.calls.at_start);
    return StrCat(open, "text", close);
  }

  std::string Calls() {
    const CallFormat& calls = format_.calls;
    list_.Add("call", Pieces(calls.first));
    std::string body = "call";
    const ToolChoice& choice = rules_.tools.choice;
    if (!calls.next.empty() && choice.parallel && choice.name.empty()) {
      list_.Add("further", Pieces(calls.next));
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

  Status WriteArguments() {
    int index = 0;
    for (const Tool* tool : Callable()) {
      const std::string name = StrCat("arguments-", index);
      if (format_.calls.tagged.has_value()) {
        auto body = WriteTagged(*format_.calls.tagged, *tool, index, list_);
        if (!body.ok())
          return body.status().Annotate(StrCat("the tool '", tool->name, "'")).WithField("tools");
        list_.Add(name, *body);
      } else {
        list_.AddSchema(name, SchemaOfArguments(*tool), !tool->strict);
      }
      ++index;
    }
    return OkStatus();
  }

  // Every tool has its own rule from the name to the arguments; the text around them is shared.
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

  // Writes gpt-oss's rules: messages of the channels analysis, commentary and final.
  void WriteHarmony(bool calls) {
    const auto literal = [this](const std::string& text) { return Literal(text); };
    list_.AddText("text", {"<|"}, false);
    const std::string again = StrCat(literal("<|end|><|start|>assistant"));
    std::string final_text = "text";
    if (rules_.answer.has_value()) {
      list_.AddPart("answer", *rules_.answer, false);
      final_text = "answer";
    }
    if (rules_.continues) return list_.Add("root", final_text);
    list_.Add("analysis", StrCat(literal("<|channel|>analysis<|message|>"), " text ", again));
    std::string body;
    if (!calls || rules_.tools.choice.mode != Mode::kRequired)
      body = StrCat(literal("<|channel|>final<|message|>"), " ", final_text);
    if (calls) {
      std::string ways;
      int index = 0;
      for (const Tool* tool : Callable()) {
        const std::string name = StrCat("arguments-", index++);
        list_.AddSchema(name, SchemaOfArguments(*tool), !tool->strict);
        ways += StrCat(ways.empty() ? "" : " | ", literal(tool->name), " tail ", name);
      }
      list_.Add("tail", StrCat("\" \"? (", literal("<|constrain|>"), "? \"json\")? ",
                               literal("<|message|>")));
      list_.Add("preamble", StrCat(literal("<|channel|>commentary<|message|>"), " text ", again));
      body += StrCat(body.empty() ? "" : " | ", "preamble? ",
                     literal("<|channel|>commentary to=functions."), " (", ways, ")");
    }
    list_.Add("root", StrCat("analysis* (", body, ")"));
  }

  std::string Literal(const std::string& text) const { return list_.Literal(text); }

  const OutputFormat& format_;
  const AnswerRules& rules_;
  RuleList list_;
};

}  // namespace

Result<std::optional<GrammarSpec>> GrammarOfAnswer(const OutputFormat& format,
                                                   const AnswerRules& rules) {
  return Writer(format, rules).Run();
}

}  // namespace thermocline::chat
