#include "tools/run/chat_commands.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/api/ffn_mode.h"
#include "engine/base/file.h"
#include "engine/base/index.h"
#include "tools/run/chat_session.h"
#include "tools/run/generation.h"

namespace thermocline::tools {
namespace {

using base::InvalidArgument;

constexpr const char* kBlanks = " \t";

struct ChatCommand {
  const char* name;
  const char* other_name;  // "" = none
  const char* arguments;
  const char* help;
  Status (*run)(ChatSession& session, const std::string& argument);
};
extern const ChatCommand kCommands[8];

std::string Padded(std::string text, std::size_t columns) {
  text.resize(std::max(text.size(), columns), ' ');
  return text;
}

Status Help(ChatSession&, const std::string&) {
  for (const ChatCommand& command : kCommands)
    Note(Padded(StrCat("  ", command.name, " ", command.arguments), 24) + command.help);
  Note("  \"\"\"                   begins and ends a message of several lines");
  Note(
      "Arrows and Ctrl-R find earlier messages. Ctrl-C stops an answer or takes a line away, "
      "Ctrl-D ends.\nA space in front sends a message that begins with \"/\".");
  return OkStatus();
}

// The settings of /set: those of generations, and those that only a chat has.
std::vector<Setting> ChatSettings(RunOptions& options) {
  std::vector<Setting> settings = SettingsOf(options);
  settings.push_back({"mode", TextValue{&options.mode},
                      "Neurons to compute: dense, exact or a predicted mode; nothing: as loaded"});
  settings.push_back({"stats", BoolValue{&options.stats}, "Speed after each answer"});
  return settings;
}

void ShowSettings(const std::vector<Setting>& settings) {
  for (const Setting& s : settings)
    Note(StrCat("  ", Padded(s.name, 20), Padded(TextOf(s.value), 10), " ", s.help));
}

// Converts the user's "on" and "off" to a value's text, and "\"\"" to "".
std::string Spoken(const OptionValue& value, const std::string& text) {
  if (text == "\"\"") return "";
  if (!std::holds_alternative<BoolValue>(value)) return text;
  return text == "on" ? "true" : text == "off" ? "false" : text;
}

// OK if a message in these modes can be answered.
Status CanCompute(const std::string& text, const EngineStats& stats) {
  ASSIGN_OR_RETURN(const FfnModes modes,
                   ParseFfnModes(text, base::IntSize(stats.ffn), FfnMode::kDense));
  const std::vector<FfnMode>& offered = stats.ffn_offered;
  for (const FfnMode mode : modes.automatic ? std::vector<FfnMode>() : modes.layers) {
    if (std::find(offered.begin(), offered.end(), mode) != offered.end()) continue;
    std::string names;
    for (const FfnMode each : offered)
      names += StrCat(names.empty() ? "" : ", ", FfnModeName(each));
    return InvalidArgument("mode '", FfnModeName(mode), "' is not there for this model as it was ",
                           "loaded; there are: ", names);
  }
  return OkStatus();
}

Status Set(ChatSession& session, const std::string& argument) {
  RunOptions& options = session.options();
  const std::vector<Setting> settings = ChatSettings(options);
  if (argument.empty()) {
    ShowSettings(settings);
    return OkStatus();
  }
  const std::size_t space = std::min(argument.find_first_of(kBlanks), argument.size());
  std::string name = argument.substr(0, space);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& s) { return s.name == name; });
  if (found == settings.end())
    return InvalidArgument("there is no setting ", name, "; /set lists them");
  const std::size_t begin = argument.find_first_not_of(kBlanks, space);
  const std::string text = begin == std::string::npos ? "" : argument.substr(begin);
  if (text.empty() && name != "mode")
    return InvalidArgument("a value for ", name, " is missing; it is ", TextOf(found->value));
  const std::string before = TextOf(found->value);
  RETURN_IF_ERROR(SetValue(found->value, name, Spoken(found->value, text)));
  Status valid = ValidateSampling(options.sampling);
  if (valid.ok() && !options.mode.empty()) {
    valid = CanCompute(options.mode, session.engine().Stats());
  }
  if (!valid.ok()) RETURN_IF_ERROR(SetValue(found->value, name, before));
  return valid;
}

Status Clear(ChatSession& session, const std::string&) {
  session.conversation().Clear();
  session.ForgetUsage();
  Note("A new conversation.");
  return OkStatus();
}

Status System(ChatSession& session, const std::string& argument) {
  Conversation& conversation = session.conversation();
  if (argument == "\"\"" || argument == "none") {
    conversation.SetSystem("");
  } else if (!argument.empty()) {
    conversation.SetSystem(argument);
  }
  Note(conversation.system().empty() ? "There is no system message."
                                     : "System message: " + conversation.system());
  return OkStatus();
}

// The path of a file as the user writes it, with ~ replaced by the home folder.
Result<std::string> PathOf(const std::string& argument) {
  if (argument.empty()) return InvalidArgument("the name of a file is missing");
  const char* home = std::getenv("HOME");
  return argument.starts_with("~/") && home != nullptr ? home + argument.substr(1) : argument;
}

std::string Messages(const Conversation& conversation) {
  return StrCat(conversation.size(), conversation.size() == 1 ? " message" : " messages");
}

// The path with links resolved, so that links are not replaced.
std::string RealPath(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

Status Save(ChatSession& session, const std::string& argument) {
  ASSIGN_OR_RETURN(const std::string path, PathOf(argument));
  if (session.conversation().size() == 0)
    return base::FailedPrecondition("there is nothing to save yet");
  const std::string file = RealPath(path);
  if (base::PathExists(file) && !session.files().contains(file)) {
    return base::FailedPrecondition(
        path, " exists and is not of this chat: it stays as it is; choose another name");
  }
  RETURN_IF_ERROR(session.conversation().Save(file));
  session.files().insert(file);
  Note(StrCat("Saved ", Messages(session.conversation()), " to ", path, "."));
  return OkStatus();
}

Status Load(ChatSession& session, const std::string& argument) {
  ASSIGN_OR_RETURN(const std::string path, PathOf(argument));
  ASSIGN_OR_RETURN(session.conversation(), Conversation::Load(path));
  session.files().insert(RealPath(path));
  session.ForgetUsage();
  Note(StrCat("Loaded ", Messages(session.conversation()), " from ", path, "."));
  return OkStatus();
}

Status Stats(ChatSession& session, const std::string&) {
  const EngineStats stats = session.engine().Stats();
  const auto& last = session.last_usage();
  if (last.has_value()) {
    Note("last answer: " + SpeedLine(*last, stats));
    Note(StrCat("context: ", last->prompt_tokens + last->completion_tokens, " of ",
                stats.context_length, " tokens"));
  } else {
    Note("There is no answer yet.");
  }
  Note(StrCat("memory: ", base::HumanBytes(stats.memory_planned), " of ",
              base::HumanBytes(stats.memory_budget)));
  return OkStatus();
}

Status Bye(ChatSession& session, const std::string&) {
  session.End();
  return OkStatus();
}

const ChatCommand kCommands[8] = {
    {"/help", "/?", "", "This list", Help},
    {"/set", "", "[NAME VALUE]", "Change how answers are made; alone: show it", Set},
    {"/clear", "", "", "Begin a new conversation; the system message stays", Clear},
    {"/system", "", "[TEXT]", "Set the system message (none: remove it); alone: show it", System},
    {"/save", "", "FILE", "Write the conversation to a file", Save},
    {"/load", "", "FILE", "Go on with a saved conversation", Load},
    {"/stats", "", "", "Speed of the last answer, context and memory used", Stats},
    {"/bye", "/exit", "", "End; so does Ctrl-D", Bye},
};

}  // namespace

Status RunCommand(ChatSession& session, const std::string& line) {
  const std::size_t space = std::min(line.find_first_of(kBlanks), line.size());
  const std::string name = line.substr(0, space);
  const std::size_t begin = line.find_first_not_of(kBlanks, space);
  const std::string argument = begin == std::string::npos ? "" : line.substr(begin);
  for (const ChatCommand& command : kCommands) {
    if (name != command.name && name != command.other_name) continue;
    if (*command.arguments == '\0' && !argument.empty())
      return InvalidArgument(name, " takes no argument");
    return command.run(session, argument).Annotate(name);
  }
  return InvalidArgument(name,
                         ": no such command; /help lists them, and a space in front makes it "
                         "a message");
}

}  // namespace thermocline::tools
