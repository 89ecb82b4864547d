#include "server/chat/format_probe.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "server/chat/call_learner.h"
#include "server/chat/json_scan.h"

namespace thermocline::chat {
namespace {

constexpr const char* kPlain = "plain answer text";
constexpr const char* kResult = "result of a tool";

struct KnownReasoning {
  const char *open, *close;
};
// Source: the models' templates and cards.
constexpr KnownReasoning kReasoning[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought\n", "<channel|>"},
    {"<seed:think>", "</seed:think>"},
    {"<mm:think>", "</mm:think>"},
    {"<think:opensource>", "</think:opensource>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
};

// Source: the models' templates, and llama.cpp's list of the same.
constexpr std::pair<const char*, bool> kKeepsReasoning[] = {{"preserve_thinking", true},
                                                            {"clear_thinking", false},
                                                            {"truncate_history_thinking", false},
                                                            {"drop_thinking", false}};

Json User(const char* text) { return Json::Object{{"role", "user"}, {"content", text}}; }
Json Assistant(const char* text) { return Json::Object{{"role", "assistant"}, {"content", text}}; }

Json ToolsJson() {
  const auto property = [](const char* type) {
    return Json::Object{{"type", type}, {"description", "A value."}};
  };
  Json::Array tools;
  for (const char* name : kProbeTools) {
    Json parameters =
        Json::Object{{"type", "object"},
                     {"properties", Json::Object{{kProbeKeys[0], property("string")},
                                                 {kProbeKeys[1], property("integer")},
                                                 {kProbeKeys[2], property("string")}}},
                     {"required", Json::Array{kProbeKeys[0]}}};
    tools.push_back(
        Json::Object{{"type", "function"},
                     {"function", Json::Object{{"name", name},
                                               {"description", "Does something."},
                                               {"parameters", std::move(parameters)}}}});
  }
  return tools;
}

Json CallJson(int index, const Json& arguments, const std::string& id, bool as_text) {
  return Json::Object{
      {"id", id},
      {"type", "function"},
      {"function", Json::Object{{"name", kProbeTools[index]},
                                {"arguments", as_text ? Json(arguments.Dump()) : arguments}}}};
}

// The position after the last marker that closes reasoning, or 0.
std::size_t BehindReasoning(const std::string& text, const ReasoningTags& tags) {
  const std::size_t at = tags.known() ? text.rfind(tags.close) : kNowhere;
  return at == kNowhere ? 0 : at + tags.close.size();
}

std::string Trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == kNowhere) return "";
  return text.substr(begin, text.find_last_not_of(" \n\r\t") + 1 - begin);
}

class Probe {
 public:
  explicit Probe(const ProbedTemplate& of) : template_(of), tools_(ToolsJson()) {}

  OutputFormat Run() {
    prompt_ = Render({User("Hey")}, true);
    format_.lists_tools = prompt_.find(kProbeTools[0]) != kNowhere;
    if (!format_.lists_tools && Mentions("xml_tools")) {
      format_.tools_variable = "xml_tools";
      prompt_ = Render({User("Hey")}, true);
      format_.lists_tools = prompt_.find(kProbeTools[0]) != kNowhere;
    }
    format_.harmony = Mentions("<|channel|>") && Mentions("<|start|>") && Mentions("<|call|>");
    FindReasoning();
    format_.has_thinking_switch = Mentions("enable_thinking");
    format_.has_effort = Mentions("reasoning_effort");
    format_.reads_thinking = Mentions("message.thinking");
    for (const auto& [name, value] : kKeepsReasoning)
      if (Mentions(name)) format_.keeps_reasoning.emplace_back(name, value);
    plain_ = Render({User("Hey"), Assistant(kPlain)}, false);
    FindAnswerOpen();
    FindContentMarks();
    FindCalls();
    FindHistory();
    format_.call_ends_thought =
        format_.reasoning.close == "</think>" && format_.calls.trigger.starts_with("<tool_call>");
    return std::move(format_);
  }

 private:
  bool Mentions(const std::string& text) const { return template_.source.find(text) != kNowhere; }
  // "" if the template rejects the conversation, or writes far more than it says.
  std::string Render(Json::Array messages, bool generate) const {
    const auto text = template_.render(Json::Object{{"messages", std::move(messages)},
                                                    {format_.tools_variable, tools_},
                                                    {"add_generation_prompt", generate}});
    constexpr std::size_t kBytesMax = 64 << 10;
    return text.ok() && text->size() <= kBytesMax ? *text : "";
  }

  void FindReasoning() {
    if (format_.harmony) return;
    for (const KnownReasoning& known : kReasoning) {
      if (!Mentions(Trimmed(known.close))) continue;
      format_.reasoning = {known.open, known.close};
      return;
    }
  }

  // Returns the position where two texts differ, moved back to the start of a marker that they
  // share in part.
  static std::size_t WhereTheyPart(const std::string& a, const std::string& b) {
    const std::size_t at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    const std::size_t open = a.substr(0, at).find_last_of("<["),
                      close = a.substr(0, at).find_last_of(">]");
    return open != kNowhere && (close == kNowhere || close < open) ? open : at;
  }

  // Finds the text that begins an answer at a prompt's end, as the last message and before another
  // question: some templates write the marks of reasoning only in some of these places.
  void FindAnswerOpen() {
    const std::string asked = Render({User("Hey")}, false),
                      past = Render({User("Hey"), Assistant(kPlain), User("Yes")}, false);
    if (format_.harmony || asked.empty()) return;
    std::string_view common = prompt_;
    for (const std::string_view other : {std::string_view(plain_), std::string_view(past)}) {
      const auto [end, unused] =
          std::mismatch(common.begin(), common.end(), other.begin(), other.end());
      common = common.substr(0, end - common.begin());
    }
    if (common.starts_with(asked)) format_.answer_open = common.substr(asked.size());
  }

  // Finds the template's marks around an answer's text, except the end of the answer.
  void FindContentMarks() {
    const std::size_t at = plain_.find(kPlain);
    if (at == kNowhere || format_.harmony) return;
    // A prompt's generation mark lies within its last bytes.
    constexpr std::size_t kNearTheEnd = 64;
    const std::size_t from = WhereTheyPart(plain_, prompt_);
    std::string open =
        from < at && from + kNearTheEnd > prompt_.size() ? plain_.substr(from, at - from) : "";
    open = open.substr(BehindReasoning(open, format_.reasoning));
    plain_end_ = plain_.substr(at + std::string_view(kPlain).size());
    if (Trimmed(open).empty()) return;
    if (open.size() > kNearTheEnd) return;
    format_.content_open = Trimmed(open);
    if (open.ends_with('\n') && format_.content_open.find('<') == kNowhere)
      format_.content_open += '\n';
    format_.content_close = Trimmed(WithoutStops(plain_end_));
  }

  // `text` up to the first marker that ends answers.
  std::string WithoutStops(const std::string& text) const {
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (std::size_t size = 1; size <= 40 && at + size <= text.size(); ++size)
        if (template_.is_stop(text.substr(at, size))) return text.substr(0, at);
    }
    return text;
  }

  // An answer that consists of calls, without the text around it; "" if the template renders none.
  std::string Answer(const std::vector<Json>& arguments, bool as_text, bool names_in_ids) const {
    Json::Array calls;
    for (int i = 0; i < base::IntSize(arguments); ++i) {
      const std::string id =
          names_in_ids ? StrCat("functions.", kProbeTools[i], ":", i) : kProbeIds[i];
      calls.push_back(CallJson(i, arguments[i], id, as_text));
    }
    Json answer = Assistant("");
    answer.Set("tool_calls", std::move(calls));
    const std::string whole = Render({User("Hey"), std::move(answer)}, false);
    if (whole.empty()) return "";
    std::string text = whole.substr(WhereTheyPart(whole, plain_));
    text = WithoutEnd(text);
    return Trimmed(text.substr(BehindReasoning(text, format_.reasoning)));
  }

  // `text` without white space around it and without the end that it shares with a plain answer.
  std::string WithoutEnd(const std::string& text) const {
    std::size_t same =
        std::mismatch(text.rbegin(), text.rend(), plain_end_.rbegin(), plain_end_.rend()).first -
        text.rbegin();
    std::string kept = text.substr(0, text.size() - same);
    const std::size_t open = kept.rfind('<'), close = kept.rfind('>');
    if (open != kNowhere && (close == kNowhere || close < open)) {  // cuts a partial marker off
      const std::size_t end = text.find('>', kept.size());
      if (end != kNowhere) kept = text.substr(0, end + 1);
    }
    return Trimmed(WithoutStops(kept));
  }

  CallTexts TextsOfCalls(bool as_text, bool names_in_ids) const {
    const Json empty = Json::Object{}, text = Json::Object{{kProbeKeys[0], "argval"}},
               other = Json::Object{{kProbeKeys[1], 7}},
               mixed =
                   Json::Object{
                       {kProbeKeys[0], "argval"}, {kProbeKeys[1], 7}, {kProbeKeys[2], "last"}},
               first = ProbeArguments();
    const auto answer = [&](const std::vector<Json>& arguments) {
      return Answer(arguments, as_text, names_in_ids);
    };
    return {.one = answer({first}),
            .two = answer({first, first}),
            .three = answer({first, first, first}),
            .none = answer({empty}),
            .text = answer({text}),
            .other = answer({other}),
            .mixed = answer({mixed})};
  }

  void FindCalls() {
    if (format_.harmony) {
      format_.writes_calls = true;
      return;
    }
    for (const bool names_in_ids : {false, true}) {
      for (const bool as_text : {false, true}) {
        const CallTexts texts = TextsOfCalls(as_text, names_in_ids);
        auto calls = LearnCalls(texts);
        if (!calls.has_value()) continue;
        if (!as_text && calls->tagged.has_value() && calls->tagged->open.ends_with('\'')) {
          // The object is in Python's notation; JSON is preferred if the template accepts it.
          const auto json = LearnCalls(TextsOfCalls(true, names_in_ids));
          if (json.has_value() && !json->tagged.has_value()) continue;
        }
        if (format_.content_open.starts_with(calls->trigger)) continue;
        format_.calls = *std::move(calls);
        format_.arguments_are_text = as_text;
        format_.writes_calls = true;
        return;
      }
    }
    format_.calls = KnownCalls();
    // If the template asks for another call format, its list of tools would mislead the model.
    if (!Mentions(format_.calls.trigger) && !format_.calls.tagged.has_value())
      format_.lists_tools = false;
  }

  // LFM2's format: a list of Python calls. Source: its model card.
  static CallFormat PythonCalls() {
    const auto calls = [](const std::string& one, const std::string& more) {
      return StrCat("<|tool_call_start|>[", kProbeTools[0], "(", one, ")", more,
                    "]<|tool_call_end|>");
    };
    const std::string both = "argkey='argval', num=7",
                      second = StrCat(", ", kProbeTools[1], "(", both, ")"),
                      third = StrCat(second, ", ", kProbeTools[2], "(", both, ")");
    return LearnCalls({.one = calls(both, ""),
                       .two = calls(both, second),
                       .three = calls(both, third),
                       .none = calls("", ""),
                       .text = calls("argkey='argval'", ""),
                       .other = calls("num=7", ""),
                       .mixed = calls("argkey='argval', num=7, zed='last'", "")})
        .value_or(CallFormat());
  }

  // Returns the call format for a template that does not render earlier calls: the one it asks for,
  // or one of our own.
  CallFormat KnownCalls() const {
    CallTexts texts;
    const auto fill = [&texts](const auto& answer) {
      texts.one = answer(1);
      texts.two = answer(2);
      texts.three = answer(3);
    };
    const std::string arguments = ProbeArguments().Dump();
    const auto object = [&arguments](int i) {
      return StrCat(R"({"name": ")", kProbeTools[i], R"(", "arguments": )", arguments, "}");
    };
    if (Mentions("<|tool_list_start|>")) return PythonCalls();
    if (Mentions("<|tool_call|>")) {
      fill([&](int calls) {
        std::string text = "<|tool_call|>[";
        for (int i = 0; i < calls; ++i) text += StrCat(i > 0 ? ", " : "", object(i));
        return text + "]";
      });
    } else {
      fill([&](int calls) {
        std::string text;
        for (int i = 0; i < calls; ++i)
          text += StrCat(i > 0 ? "\n" : "", "<tool_call>\n", object(i), "\n</tool_call>");
        return text;
      });
    }
    return LearnCalls(texts).value_or(CallFormat());
  }

  void FindHistory() {
    Json call = Assistant("");
    call.Set("tool_calls",
             Json::Array{CallJson(0, ProbeArguments(), kProbeIds[0], format_.arguments_are_text)});
    const Json result = Json::Object{{"role", "tool"},
                                     {"tool_call_id", kProbeIds[0]},
                                     {"name", kProbeTools[0]},
                                     {"content", kResult}};
    format_.writes_results = Render({User("Hey"), call, result}, true).find(kResult) != kNowhere;
    FindPlaces(call, result);
    if (!AnswersStandApart(call, result)) format_.answer_open.clear();
    Json foreign = Assistant("");
    foreign.Set("tool_calls", Json::Array{CallJson(0, ProbeArguments(), "call_of_another_length",
                                                   format_.arguments_are_text)});
    format_.ids_of_nine = format_.writes_calls && Render({User("Hey"), foreign}, false).empty();
  }

  // True if an answer ends before a tool's result, and the next one opens behind it: some templates
  // write both answers and the result as one turn.
  bool AnswersStandApart(const Json& call, const Json& result) const {
    // Calls are part of an answer's text if the template writes none.
    const Json answer = format_.writes_calls ? call : Assistant("argval");
    const std::string text =
        Render({User("Hey"), answer, result, Assistant(kPlain), User("Yes")}, true);
    if (text.empty() || !format_.writes_results) return !format_.writes_results;
    const std::size_t end = text.find(kResult), called = text.rfind("argval", end),
                      next = text.find(kPlain, end == kNowhere ? 0 : end);
    if (end == kNowhere || called == kNowhere || next == kNowhere) return false;
    const std::string before = text.substr(called, end - called),
                      behind = text.substr(end, next - end);
    return WithoutStops(before).size() < before.size() &&
           behind.find(format_.answer_open) != kNowhere;
  }

  // Finds the places in a conversation where the template accepts system and user messages.
  void FindPlaces(const Json& call, const Json& result) {
    constexpr const char* kSecond = "text of a second message";
    const auto system = [](const char* text) {
      return Json::Object{{"role", "system"}, {"content", text}};
    };
    const auto shows = [](const std::string& text, const char* first, const char* second) {
      const std::size_t at = text.find(first);
      return at != kNowhere && text.find(second, at) != kNowhere;
    };
    format_.system_role = Render({system(kResult), User("Hey")}, true).find(kResult) != kNowhere;
    format_.several_systems =
        shows(Render({system(kResult), system(kSecond), User("Hey")}, true), kResult, kSecond);
    format_.late_system =
        shows(Render({system("Hi"), User("Hey"), Assistant(kPlain), system(kSecond), User("Yes")},
                     true),
              kPlain, kSecond) &&
        shows(Render({system("Hi"), User("Hey"), Assistant(kPlain), User("Yes"), system(kSecond)},
                     true),
              kPlain, kSecond);
    format_.repeated_user = shows(Render({User(kResult), User(kSecond)}, true), kResult, kSecond);
    format_.user_after_result =
        format_.writes_results &&
        shows(Render({User("Hey"), call, result, User(kSecond)}, true), kResult, kSecond);
  }

  const ProbedTemplate& template_;
  const Json tools_;
  OutputFormat format_;
  std::string prompt_, plain_, plain_end_;
};

}  // namespace

OutputFormat LearnFormat(const ProbedTemplate& chat_template) { return Probe(chat_template).Run(); }

}  // namespace thermocline::chat
