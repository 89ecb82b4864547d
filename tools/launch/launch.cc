// `thermocline launch`: runs an agent with a model that is served here.
#include <chrono>
#include <csignal>
#include <cstdio>

#include "engine/base/stopwatch.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/launch/child_process.h"
#include "tools/launch/launch_report.h"
#include "tools/launch/launch_server.h"

namespace thermocline::tools {
namespace {

constexpr int kExitNotFound = 127;  // as a shell has it
constexpr std::chrono::milliseconds kProgramPoll{1000};
// The time that an agent has to end after SIGTERM.
constexpr double kEndSeconds = 10;

struct LaunchOptions {
  std::string agent;
  ServerChoice server;
  std::vector<std::string> arguments;
  bool print = false, json = false;
};

// Warns if the agent's first prompt does not fit, or leaves little room.
void CheckContext(const Agent& agent, const ServerModels& models) {
  if (models.context == 0 || models.context >= agent.context_min) return;
  const std::string first = *agent.first_prompt == '\0' ? ""
                                                        : StrCat(" (its first prompt has about ",
                                                                 agent.first_prompt, " tokens)");
  const std::string advice =
      models.context_trained >= agent.context_min
          ? StrCat("serve the model with --set engine.context_length=", agent.context_min)
          : "take a model with a longer context";
  std::fprintf(stderr, "warning: a context of %s tokens is short for %s, which wants %d%s: %s\n",
               StrCat(models.context).c_str(), agent.title, agent.context_min, first.c_str(),
               advice.c_str());
}

LaunchPlan PlanOf(const LaunchOptions& o, const Agent& agent, const Server& server) {
  const bool daemon = server.address.url.empty();
  LaunchPlan plan;
  plan.endpoint = {.url = daemon ? kDefaultUrl : server.models.url,
                   .model = server.model,
                   .context = server.models.context,
                   .keyed = !server.address.key.empty()};
  if (daemon) plan.daemon = DaemonCommand(o.server.daemon());
  AgentSetup setup = agent.set_up(plan.endpoint);
  plan.variables = std::move(setup.variables);
  plan.command = {agent.program};
  plan.command.insert(plan.command.end(), setup.arguments.begin(), setup.arguments.end());
  plan.command.insert(plan.command.end(), o.arguments.begin(), o.arguments.end());
  const std::string& file = o.server.key_file;
  plan.key_source =
      file.empty() ? "\"$THERMOCLINE_API_KEY\"" : StrCat("\"$(head -n 1 ", ShellWord(file), ")\"");
  return plan;
}

// Waits for the agent, and passes signals on that a terminal has not sent it.
int WaitForProgram(pid_t pid, SignalWatch& signals) {
  std::optional<base::Stopwatch> ending;
  while (true) {
    if (const auto status = ExitStatusOf(pid)) return *status;
    if (ending.has_value() && ending->Seconds() > kEndSeconds) ::kill(pid, SIGKILL);
    const auto signal = signals.Wait(kProgramPoll);
    if (!signal.has_value() || signal->number == SIGCHLD || signal->from_kernel) continue;
    ::kill(pid, signal->number);
    if (signal->number == SIGTERM || signal->number == SIGHUP) ending.emplace();
  }
}

Status RunAgent(const LaunchPlan& plan, const std::string& path, const std::string& key,
                SignalWatch& signals) {
  ProgramStart start{.command = plan.command, .variables = plan.variables};
  start.command.front() = path;
  for (Variable& variable : start.variables)
    if (variable.value == kApiKeyMark) variable.value = key;
  ASSIGN_OR_RETURN(const pid_t pid, StartProgram(start));
  SetExitStatus(WaitForProgram(pid, signals));
  return OkStatus();
}

Status DryRun(const LaunchOptions& o, const Agent& agent) {
  ASSIGN_OR_RETURN(const Server server, FindServer(o.server));
  const LaunchPlan plan = PlanOf(o, agent, server);
  CheckContext(agent, server.models);
  if (o.json) {
    PrintJson(ToJson(plan));
  } else {
    std::fputs(ShellLines(plan).c_str(), stdout);
  }
  return OkStatus();
}

Status Launch(const LaunchOptions& o) {
  const Agent& agent = FindAgent(o.agent);
  if (o.print) return DryRun(o, agent);
  const std::string path = PathOfProgram(agent.program);
  if (path.empty()) {
    SetExitStatus(kExitNotFound);
    return base::NotFound(agent.program, " is not in PATH; to install it: ", agent.install);
  }
  SignalWatch signals;
  ASSIGN_OR_RETURN(Server server, FindServer(o.server));
  RETURN_IF_ERROR(MakeReady(o.server, server, signals));
  std::fprintf(stderr, "%s serves %s, context %s\n", server.models.url.c_str(),
               server.model.c_str(), StrCat(server.models.context).c_str());
  CheckContext(agent, server.models);
  const LaunchPlan plan = PlanOf(o, agent, server);
  std::fputs(ShellLines(plan).c_str(), stderr);
  RETURN_IF_ERROR(RunAgent(plan, path, server.address.key, signals));
  const Status running = server.own != nullptr ? server.own->CheckRunning() : OkStatus();
  if (!running.ok()) std::fprintf(stderr, "thermocline launch: %s\n", running.message().c_str());
  return OkStatus();
}

std::vector<std::string> AgentNames() {
  std::vector<std::string> names;
  for (const Agent& agent : Agents()) names.emplace_back(agent.name);
  return names;
}

}  // namespace

Command AddLaunch(const OptionSet& set) {
  auto o = std::make_shared<LaunchOptions>();
  std::string list;
  for (const std::string& name : AgentNames()) list += StrCat(list.empty() ? "" : ", ", name);
  set.Add("agent", TextValue{&o->agent, AgentNames()}, "The program to run: " + list).Required();
  set.PassOn(o->arguments);
  const OptionRef url =
      set.Add("--url", o->server.url,
              StrCat("The server; not given: ", kDefaultUrl, ", and if it does not answer or has ",
                     "another model, a daemon of --model that ends with the agent"));
  set.Add("-m,--model", o->server.model,
          "Model to serve: a file, folder or built-in name; or a name that the server lists. Not "
          "given: the server's first");
  set.Add("--api-key-file", o->server.key_file,
          "File whose first line is the server's key; not given: THERMOCLINE_API_KEY");
  set.Add("--cache", o->server.cache,
          "With a daemon of --model: folder that keeps prompts' prefixes (prefix_cache.path)")
      .Excludes(url);
  set.Add("--set", o->server.set, "With a daemon of --model: a setting of it, section.key=value")
      .Excludes(url);
  const OptionRef print =
      set.Add("--print", o->print, "Print variables and commands for a shell, and run nothing");
  set.Add("--json", o->json, "With --print: one JSON object on standard output").Needs(print);
  set.AddFooter(
      "Arguments of the program stand behind --, as in: thermocline launch claude -- -p \"Hello\"");
  return [o] { return Launch(*o); };
}

}  // namespace thermocline::tools
