#include "tools/eval/task.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/json.h"

namespace thermocline::tools {
namespace {

constexpr const char* kInvalid = "[invalid]";
const std::vector<std::string> kGsm8kStop = {"Question:", "</s>", "<|im_end|>"};

// One line, and its place for messages.
struct Line {
  std::string where;
  Json json;
};

Status CheckKeys(const Line& line, const std::set<std::string_view>& known) {
  for (const auto& [key, value] : line.json.as_object()) {
    if (!known.contains(key))
      return base::InvalidArgument(line.where, ": '", key,
                                   "' is unknown; a line has prompt, choices and gold, or question "
                                   "and answer, or prompt, answer and stop");
  }
  return OkStatus();
}

Result<std::string> TextOf(const Line& line, const char* key) {
  const Json* value = line.json.Find(key);
  const bool text = value != nullptr && value->is_string();
  if (!text || value->as_string().find_first_not_of(" \t\r\n") == std::string::npos)
    return base::InvalidArgument(line.where, ": '", key, "' must be a text that is not empty");
  return value->as_string();
}

Result<std::vector<std::string>> TextsOf(const Line& line, const char* key) {
  const Json& value = *line.json.Find(key);
  std::vector<std::string> texts;
  const bool array = value.is_array();
  for (std::size_t i = 0; array && i < value.as_array().size(); ++i) {
    const Json& text = value.as_array()[i];
    if (text.is_string() && !text.as_string().empty()) texts.push_back(text.as_string());
  }
  if (!array || texts.empty() || texts.size() != value.as_array().size())
    return base::InvalidArgument(line.where, ": '", key, "' must be an array of texts");
  return texts;
}

Status ReadChoices(const Line& line, TaskItem& item) {
  RETURN_IF_ERROR(CheckKeys(line, {"id", "prompt", "choices", "gold"}));
  ASSIGN_OR_RETURN(item.prompt, TextOf(line, "prompt"));
  ASSIGN_OR_RETURN(item.choices, TextsOf(line, "choices"));
  const Json* gold = line.json.Find("gold");
  if (item.choices.size() < 2)
    return base::InvalidArgument(line.where, ": 'choices' must have two texts or more");
  if (gold == nullptr || !gold->is_int() || gold->as_int() < 0 ||
      gold->as_int() >= base::IntSize(item.choices))
    return base::InvalidArgument(line.where, ": 'gold' must be the index of a choice, from 0");
  item.gold = static_cast<int>(gold->as_int());
  return OkStatus();
}

Status ReadGsm8k(const Line& line, TaskItem& item) {
  RETURN_IF_ERROR(CheckKeys(line, {"id", "question", "answer"}));
  ASSIGN_OR_RETURN(const std::string question, TextOf(line, "question"));
  ASSIGN_OR_RETURN(item.answer, TextOf(line, "answer"));
  if (StrictAnswer(item.answer) == kInvalid)
    return base::InvalidArgument(line.where, ": 'answer' must end with \"#### \" and a number");
  item.prompt = StrCat("Question: ", question, "\nAnswer:");
  item.stop = kGsm8kStop;
  return OkStatus();
}

Status ReadQuestion(const Line& line, TaskItem& item) {
  RETURN_IF_ERROR(CheckKeys(line, {"id", "prompt", "answer", "stop"}));
  ASSIGN_OR_RETURN(item.prompt, TextOf(line, "prompt"));
  ASSIGN_OR_RETURN(item.answer, TextOf(line, "answer"));
  item.stop = {"\n"};
  if (line.json.Find("stop") == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(item.stop, TextsOf(line, "stop"));
  return OkStatus();
}

Task::Kind KindOf(const Json& json) {
  if (json.Find("choices") != nullptr) return Task::Kind::kChoices;
  return json.Find("question") != nullptr ? Task::Kind::kGsm8k : Task::Kind::kGenerate;
}

Status ReadLine(const Line& line, Task& task) {
  const Task::Kind kind = KindOf(line.json);
  if (task.items.empty()) task.kind = kind;
  if (task.kind != kind)
    return base::InvalidArgument(line.where, ": is of kind ", TaskKindName(kind),
                                 ", but those before are ", TaskKindName(task.kind));
  TaskItem& item = task.items.emplace_back();
  switch (kind) {
    case Task::Kind::kChoices:
      return ReadChoices(line, item);
    case Task::Kind::kGsm8k:
      return ReadGsm8k(line, item);
    case Task::Kind::kGenerate:
      break;
  }
  return ReadQuestion(line, item);
}

Status MoveShots(const std::string& path, int shots, Task& task) {
  if (shots == 0) return OkStatus();
  if (task.kind == Task::Kind::kChoices)
    return base::InvalidArgument("--shots: choices take no examples; write them into the prompts");
  if (shots >= base::IntSize(task.items))
    return base::InvalidArgument(path, ": has ", task.items.size(),
                                 " items, which leaves none behind ", shots, " examples");
  std::string examples;
  for (int i = 0; i < shots; ++i)
    examples += StrCat(task.items[i].prompt, " ", task.items[i].answer, "\n\n");
  task.items.erase(task.items.begin(), task.items.begin() + shots);
  for (TaskItem& item : task.items) item.prompt.insert(0, examples);
  return OkStatus();
}

std::string Normalised(std::string text) {
  const std::size_t reasoning = text.rfind("#### ");
  std::erase_if(text, [](char c) { return c == ',' || c == '$'; });
  if (reasoning != std::string::npos) text.erase(0, text.rfind("#### ") + 5);
  if (text.ends_with('.')) text.pop_back();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

const char* TaskKindName(Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kChoices:
      return "choices";
    case Task::Kind::kGsm8k:
      return "gsm8k";
    case Task::Kind::kGenerate:
      break;
  }
  return "generate";
}

Result<Task> ReadTask(const std::string& path, int shots) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  Task task;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = StrCat(path, ":", number);
    auto json = base::ParseJson(line);
    if (!json.ok() || !json->is_object())
      return base::InvalidArgument(where, ": is no JSON object");
    RETURN_IF_ERROR(ReadLine({where, *std::move(json)}, task));
  }
  if (task.items.empty()) return base::InvalidArgument(path, ": holds no items");
  RETURN_IF_ERROR(MoveShots(path, shots, task));
  return task;
}

std::string StrictAnswer(const std::string& text) {
  static const std::regex kPattern("#### (-?[0-9.,]+)");
  std::smatch match;
  return std::regex_search(text, match, kPattern) ? match[1].str() : kInvalid;
}

std::string FlexibleAnswer(const std::string& text) {
  static const std::regex kPattern("-?[$0-9.,]{2,}|-?[0-9]+");
  std::string last = kInvalid;
  for (std::sregex_iterator it(text.begin(), text.end(), kPattern), end; it != end; ++it)
    last = it->str();
  return last;
}

bool SameAnswer(const std::string& answer, const std::string& expected) {
  return Normalised(answer) == Normalised(expected);
}

}  // namespace thermocline::tools
