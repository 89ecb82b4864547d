#include "server/chat/lenient_calls.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "server/chat/argument_forms.h"
#include "server/chat/json_scan.h"
#include "server/chat/message_json.h"

namespace thermocline::chat {
namespace {

constexpr std::size_t kLenientCallsMax = 16;
constexpr std::string_view kFence = "```", kFunctionTag = "<function=";
constexpr std::string_view kBlank = " \t\r\n";
constexpr std::array<std::string_view, 7> kLanguages = {"",          "json",      "xml",   "tool",
                                                        "tool_call", "tool_code", "python"};
constexpr std::array<std::string_view, 6> kStrayTags = {
    "</tool_call>", "<tool_call>", "</function>", "</tools>", "<tools>", "</tool>"};

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == kNowhere) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

bool BeginsPart(std::string_view text, std::string_view marker) {
  const std::size_t size = std::min(text.size(), marker.size());
  return text.substr(0, size) == marker.substr(0, size);
}

// `text` without leading separators between calls.
std::string_view WithoutSeparators(std::string_view text) {
  while (true) {
    const std::string_view before = text;
    text = text.substr(std::min(text.find_first_not_of(" \t\r\n,;"), text.size()));
    for (const std::string_view tag : kStrayTags)
      if (text.starts_with(tag)) text.remove_prefix(tag.size());
    if (text == before) return text;
  }
}

// The tool with the name that a model wrote, or nullptr.
const Tool* FindTool(std::string_view name, const std::vector<Tool>& tools) {
  const auto find = [&tools](std::string_view wanted) -> const Tool* {
    const auto found = std::find_if(tools.begin(), tools.end(),
                                    [wanted](const Tool& tool) { return tool.name == wanted; });
    return found == tools.end() ? nullptr : &*found;
  };
  if (const Tool* tool = find(name)) return tool;
  for (const std::string_view prefix : {"functions.", "default_api."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const std::size_t colon = name.rfind(':');
  const bool numbered = colon != kNowhere && colon + 1 < name.size() &&
                        name.find_first_not_of("0123456789", colon + 1) == kNowhere;
  return find(numbered ? name.substr(0, colon) : name);
}

std::vector<std::string> RequiredOf(const Tool& tool) {
  std::vector<std::string> out;
  const Json* required = tool.parameters.Find("required");
  if (required == nullptr || !required->is_array()) return out;
  for (const Json& each : required->as_array()) out.push_back(TextOf(&each));
  return out;
}

// True if `arguments` has all required parameters of the schema and no unknown ones.
bool FitsSchema(const Tool& tool, const Json& arguments) {
  const Json* properties = tool.parameters.Find("properties");
  for (const std::string& name : RequiredOf(tool))
    if (arguments.FindRaw(name) == nullptr) return false;
  return std::all_of(arguments.as_object().begin(), arguments.as_object().end(),
                     [&](const auto& member) {
                       return properties != nullptr && properties->Find(member.first) != nullptr;
                     });
}

// Parses the calls of one candidate. Either all parts are calls, or the candidate is text.
class Reader {
 public:
  Reader(const std::vector<Tool>& tools, bool cut) : tools_(tools), cut_(cut) {}

  LenientCalls Run(std::string_view text) {
    out_.form = CallForm::kJson;
    text = Trimmed(text);
    if (text.starts_with(kFence)) {
      out_.form = CallForm::kFence;
      ReadFence(text);
    } else {
      ReadList(text);
    }
    if (out_.rule != CallRule::kNone) out_.calls.clear();
    return std::move(out_);
  }

 private:
  void Reject(CallRule rule) {
    if (out_.rule == CallRule::kNone) out_.rule = rule;
  }
  bool good() const { return out_.rule == CallRule::kNone; }

  void ReadFence(std::string_view text) {
    const std::size_t line = text.find('\n');
    if (line == kNowhere) return Reject(CallRule::kFence);
    std::string_view body = text.substr(line + 1);
    const std::size_t end = body.rfind(kFence);
    if (end == kNowhere || !WithoutSeparators(body.substr(end + kFence.size())).empty())
      return Reject(CallRule::kFence);
    body = body.substr(0, end);
    if (body.find(kFence) != kNowhere) return Reject(CallRule::kFence);
    ReadList(Trimmed(body));
  }

  // Parses calls with separators between them, until the text's end.
  void ReadList(std::string_view text) {
    text = WithoutSeparators(text);
    while (good() && !text.empty()) {
      if (text.starts_with(kFunctionTag)) {
        text = ReadTagged(text);
      } else if (text[0] == '{' || text[0] == '[') {
        text = ReadJson(text);
      } else {
        return Reject(CallRule::kPlace);
      }
      text = WithoutSeparators(text);
    }
    if (out_.calls.empty()) Reject(CallRule::kMembers);
  }

  std::string_view ReadJson(std::string_view text) {
    const std::size_t end = EndOfJson(text, 0);
    const bool closes = end == kNowhere && !cut_;
    const auto value = base::ParseJson(closes ? Closed(text) : std::string(text.substr(0, end)));
    if (!value.ok()) {
      Reject(CallRule::kMembers);
      return {};
    }
    if (value->is_array()) {
      for (const Json& each : value->as_array()) ReadObject(each);
    } else {
      ReadObject(*value);
    }
    return end == kNowhere ? std::string_view() : text.substr(end);
  }

  // Appends the missing closing brackets, unless a string is open.
  static std::string Closed(std::string_view text) {
    std::string open;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (in_string) {
        if (c == '\\') ++i;
        if (c == '"') in_string = false;
        continue;
      }
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') open.push_back(c == '{' ? '}' : ']');
      if ((c == '}' || c == ']') && !open.empty()) open.pop_back();
    }
    std::string out(text);
    if (!in_string) out.append(open.rbegin(), open.rend());
    return out;
  }

  void ReadObject(const Json& object) {
    if (!object.is_object()) return Reject(CallRule::kMembers);
    if (const Json* function = object.Find("function");
        function != nullptr && function->is_object())
      return OnlyMembers(object, {"id", "type", "function"}) ? ReadObject(*function)
                                                             : Reject(CallRule::kOtherMembers);
    const Json* name = object.Find("name");
    if (name == nullptr) return ReadNamedMember(object);
    if (!name->is_string()) return Reject(CallRule::kMembers);
    const Tool* tool = FindTool(name->as_string(), tools_);
    if (tool == nullptr) return Reject(CallRule::kName);
    if (!OnlyMembers(object, {"id", "type", "name", "arguments", "parameters"}))
      return Reject(CallRule::kOtherMembers);
    const Json* arguments = object.Find("arguments");
    if (arguments == nullptr) arguments = object.Find("parameters");
    if (arguments == nullptr) {
      if (!RequiredOf(*tool).empty()) return Reject(CallRule::kMembers);
      return Add(*tool, "{}");
    }
    AddArguments(*tool, *arguments);
  }

  void AddArguments(const Tool& tool, const Json& arguments) {
    if (arguments.is_object()) return Add(tool, arguments.Dump());
    const auto parsed = base::ParseJson(TextOf(&arguments));
    if (!parsed.ok() || !parsed->is_object()) return Reject(CallRule::kMembers);
    Add(tool, parsed->Dump());
  }

  // Parses {"NAME": {...}}.
  void ReadNamedMember(const Json& object) {
    if (object.as_object().size() != 1) return Reject(CallRule::kMembers);
    const auto& [name, arguments] = object.as_object()[0];
    const Tool* tool = FindTool(name, tools_);
    if (tool == nullptr) return Reject(CallRule::kName);
    if (!arguments.is_object() || !FitsSchema(*tool, arguments)) return Reject(CallRule::kMembers);
    Add(*tool, arguments.Dump());
  }

  static bool OnlyMembers(const Json& object, std::initializer_list<std::string_view> known) {
    return std::all_of(object.as_object().begin(), object.as_object().end(),
                       [known](const auto& member) {
                         return std::find(known.begin(), known.end(), member.first) != known.end();
                       });
  }

  // Parses <function=NAME><parameter=KEY>VALUE</parameter>...</function>.
  std::string_view ReadTagged(std::string_view text) {
    constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>",
                               kEnd = "</function>";
    out_.form = out_.form == CallForm::kFence ? CallForm::kFence : CallForm::kXml;
    const auto reject = [this](CallRule rule) {
      Reject(rule);
      return std::string_view();
    };
    const std::size_t close = text.find('>');
    if (close == kNowhere) return reject(CallRule::kMembers);
    const Tool* tool =
        FindTool(text.substr(kFunctionTag.size(), close - kFunctionTag.size()), tools_);
    if (tool == nullptr) return reject(CallRule::kName);
    Json arguments = Json::Object{};
    text = text.substr(close + 1);
    while (true) {
      text = text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
      if (text.starts_with(kEnd)) break;
      const std::size_t key_end = text.find('>'), end = text.find(kParameterEnd);
      if (!text.starts_with(kParameter) || key_end == kNowhere || end == kNowhere || end < key_end)
        return reject(CallRule::kMembers);
      const std::string key(text.substr(kParameter.size(), key_end - kParameter.size()));
      arguments.Set(key, TaggedValue(*tool, key, text.substr(key_end + 1, end - key_end - 1)));
      text = text.substr(end + kParameterEnd.size());
    }
    Add(*tool, arguments.Dump());
    return text.substr(kEnd.size());
  }

  // Strings are raw text, without one line break at each end; other values are JSON.
  static Json TaggedValue(const Tool& tool, const std::string& key, std::string_view raw) {
    if (raw.starts_with('\n')) raw.remove_prefix(1);
    if (raw.ends_with('\n')) raw.remove_suffix(1);
    if (TypeOfParameter(tool.parameters, key) == "string") return std::string(raw);
    auto value = base::ParseJson(raw);
    return value.ok() ? *std::move(value) : Json(std::string(raw));
  }

  void Add(const Tool& tool, std::string arguments) {
    // Strict tools can only be called under their grammar.
    if (tool.strict) return Reject(CallRule::kMembers);
    if (out_.calls.size() == kLenientCallsMax) return Reject(CallRule::kMembers);
    out_.calls.push_back({.id = "", .name = tool.name, .arguments = std::move(arguments)});
  }

  const std::vector<Tool>& tools_;
  const bool cut_;
  LenientCalls out_;
};

// True if an object with this start may be a call: its first key is one of a call's keys.
bool MayBeObject(std::string_view text, const std::vector<Tool>& tools) {
  text.remove_prefix(1);
  text = text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
  if (text.empty()) return true;
  if (text[0] != '"') return false;
  text.remove_prefix(1);
  const std::size_t end = text.find('"');
  const auto is = [&](std::string_view key) {
    return end == kNowhere ? BeginsPart(text, key) && text.size() <= key.size()
                           : text.substr(0, end) == key;
  };
  for (const std::string_view key : {"name", "arguments", "parameters", "function", "type", "id"})
    if (is(key)) return true;
  return std::any_of(tools.begin(), tools.end(), [&is](const Tool& tool) { return is(tool.name); });
}

bool MayBeJson(std::string_view text, const std::vector<Tool>& tools) {
  if (text.empty()) return true;
  if (text[0] == '{') return MayBeObject(text, tools);
  if (text[0] == '<') {
    return BeginsPart(text, kFunctionTag) ||
           std::any_of(kStrayTags.begin(), kStrayTags.end(),
                       [text](std::string_view tag) { return BeginsPart(text, tag); });
  }
  if (text[0] != '[') return false;
  text = text.substr(1);
  text = text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
  return text.empty() || (text[0] == '{' && MayBeObject(text, tools));
}

}  // namespace

const char* CallFormName(CallForm form) {
  static constexpr const char* kNames[] = {"native", "json", "fence", "xml"};
  return kNames[base::Index(form)];
}

const char* CallRuleName(CallRule rule) {
  static constexpr const char* kNames[] = {"", "R2", "R3", "R4", "R5", "R6"};
  return kNames[base::Index(rule)];
}

std::size_t FindCandidate(std::string_view text, const CandidateSearch& search) {
  bool line_begins = search.begin;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    const char c = rest[0];
    if (c == '\n') {
      line_begins = true;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\r') continue;
    if (line_begins) {
      const bool near = search.prose + at <= kProseBytesMax;
      if (BeginsPart(rest, kFence)) return at;
      if (near && (c == '{' || c == '[' || BeginsPart(rest, kFunctionTag))) return at;
    }
    line_begins = false;
  }
  return kNowhere;
}

bool MayBecomeCalls(std::string_view candidate, const std::vector<Tool>& tools) {
  if (candidate.size() > kCandidateBytesMax) return false;
  if (candidate.size() < kFence.size() || !candidate.starts_with(kFence))
    return BeginsPart(candidate, kFence) || MayBeJson(candidate, tools);
  const std::size_t line = candidate.find('\n');
  const std::string_view language =
      candidate.substr(kFence.size(), (line == kNowhere ? candidate.size() : line) - kFence.size());
  if (line == kNowhere) {
    return std::any_of(kLanguages.begin(), kLanguages.end(), [language](std::string_view known) {
      return language.size() <= known.size() && BeginsPart(language, known);
    });
  }
  if (std::find(kLanguages.begin(), kLanguages.end(), Trimmed(language)) == kLanguages.end())
    return false;
  const std::string_view body = candidate.substr(line + 1);
  const std::size_t end = body.find(kFence);
  if (end != kNowhere && !WithoutSeparators(body.substr(end + kFence.size())).empty()) return false;
  return MayBeJson(WithoutSeparators(body), tools);
}

LenientCalls ParseLenientCalls(std::string_view candidate, const std::vector<Tool>& tools,
                               bool cut) {
  return Reader(tools, cut).Run(candidate);
}

}  // namespace thermocline::chat
