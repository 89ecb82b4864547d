#include "tools/launch/launch_report.h"

#include <string_view>

namespace thermocline::tools {
namespace {

std::string ShellCommand(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += StrCat(line.empty() ? "" : " ", ShellWord(word));
  return line;
}

Json ListOf(const std::vector<std::string>& words) {
  return Json::Array(words.begin(), words.end());
}

}  // namespace

std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:=@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string ShellLines(const LaunchPlan& plan) {
  std::string lines;
  if (!plan.daemon.empty()) lines += ShellCommand(plan.daemon) + " &\n";
  for (const Variable& variable : plan.variables) {
    const bool key = variable.value == kApiKeyMark;
    const bool empty = variable.value.empty();
    lines += StrCat("export ", variable.name, "=",
                    key     ? plan.key_source
                    : empty ? ""
                            : ShellWord(variable.value),
                    "\n");
  }
  return lines + ShellCommand(plan.command) + "\n";
}

Json ToJson(const LaunchPlan& plan) {
  Json::Object variables;
  for (const Variable& variable : plan.variables) {
    const bool key = variable.value == kApiKeyMark;
    variables.emplace_back(variable.name, key ? plan.key_source : variable.value);
  }
  return Json::Object{{"server", Json::Object{{"url", plan.endpoint.url},
                                              {"model", plan.endpoint.model},
                                              {"context_length", plan.endpoint.context}}},
                      {"daemon", plan.daemon.empty() ? Json() : ListOf(plan.daemon)},
                      {"variables", std::move(variables)},
                      {"command", ListOf(plan.command)}};
}

}  // namespace thermocline::tools
