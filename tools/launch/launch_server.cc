#include "tools/launch/launch_server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/stopwatch.h"
#include "engine/model/open/builtin.h"
#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

constexpr std::chrono::milliseconds kReadyPoll{100};

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find_first_of("\r\n"));
}

// The first line of --api-key-file or of THERMOCLINE_API_KEY; "" = no key.
Result<std::string> ReadKey(const ServerChoice& choice) {
  if (choice.key_file.empty()) {
    const char* key = std::getenv("THERMOCLINE_API_KEY");
    return FirstLine(key != nullptr ? key : "");
  }
  constexpr std::uint64_t kBytesMax = 1 << 20;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(choice.key_file, kBytesMax));
  const std::string key = FirstLine(text);
  if (key.empty()) return base::InvalidArgument(choice.key_file, ": its first line holds no key");
  return key;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The name that a daemon gives to the model at a path.
std::string NameOfPath(const std::string& path) {
  const std::filesystem::path file(path);
  return file.has_filename() ? file.stem().string() : file.parent_path().filename().string();
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += StrCat(text.empty() ? "" : ", ", name);
  return text;
}

// Chooses the name for the agent of a server that answers. NotFound: it has not the model of
// --model.
Result<std::string> ChooseModel(const ServerChoice& choice, const ServerAddress& address,
                                const ServerModels& models) {
  if (choice.model.empty()) return models.names.front();
  if (Contains(models.names, choice.model) || AcceptsModel(address, choice.model))
    return choice.model;
  return base::NotFound(address.url, " has no model '", choice.model,
                        "': --model takes one of its names: ", Joined(models.names));
}

Status NothingAnswers(const ServerChoice& choice, const Status& why) {
  if (!choice.url.empty() || why.code() != StatusCode::kUnavailable) return why;
  if (!choice.model.empty()) return model::ResolveModel(choice.model).status();
  return base::Unavailable("no server answers at ", kDefaultUrl,
                           ": name a model by --model MODEL, which is then served until the ",
                           "agent ends, or a server by --url");
}

Status StoppedBy(const ReceivedSignal& signal) {
  SetExitStatus(kExitSignalled + signal.number);
  return base::Cancelled("stopped by signal ", signal.number);
}

// The line on a terminal that says how long a model has been loading.
class WaitingLine {
 public:
  ~WaitingLine() {
    if (shown_s_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void Show(const std::string& what) {
    const int seconds = static_cast<int>(watch_.Seconds());
    if (seconds == shown_s_ || ::isatty(STDERR_FILENO) == 0) return;
    shown_s_ = seconds;
    std::fprintf(stderr, "\rloading %s: %d s", what.c_str(), seconds);
  }

 private:
  base::Stopwatch watch_;
  int shown_s_ = -1;
};

// Waits until the server has loaded its model, then reads its models. Unavailable: it is gone;
// Cancelled: a signal.
Status WaitUntilReady(Server& server, SignalWatch& signals) {
  WaitingLine line;
  while (true) {
    const auto ready = IsServerReady(server.address);
    if (ready.ok() && *ready) break;
    if (server.own != nullptr) RETURN_IF_ERROR(server.own->CheckRunning());
    if (server.own == nullptr && !ready.ok()) return ready.status();
    line.Show(server.model);
    const auto signal = signals.Wait(kReadyPoll);
    if (signal.has_value() && signal->number != SIGCHLD) return StoppedBy(*signal);
  }
  ASSIGN_OR_RETURN(server.models, ReadServerModels(server.address));
  return OkStatus();
}

// Starts a daemon for --model.
Status StartDaemon(const ServerChoice& choice, Server& server) {
  ASSIGN_OR_RETURN(server.own, OwnDaemon::Start(choice.daemon()));
  server.address.url = server.own->url();
  std::fprintf(stderr, "serving %s at %s; log: %s\n", choice.model.c_str(),
               server.address.url.c_str(), server.own->log_path().c_str());
  return OkStatus();
}

}  // namespace

Result<Server> FindServer(const ServerChoice& choice) {
  ASSIGN_OR_RETURN(std::string key, ReadKey(choice));
  Server server{
      .address = {.url = choice.url.empty() ? kDefaultUrl : choice.url, .key = std::move(key)}};
  const bool can_serve =
      choice.url.empty() && !choice.model.empty() && model::ResolveModel(choice.model).ok();
  auto models = ReadServerModels(server.address);
  if (can_serve) {
    server.model = NameOfPath(choice.model);
    if (!models.ok() || !Contains(models->names, server.model)) {
      server.address.url.clear();
      return server;
    }
  } else if (!models.ok()) {
    return NothingAnswers(choice, models.status());
  } else {
    ASSIGN_OR_RETURN(server.model, ChooseModel(choice, server.address, *models));
  }
  server.models = *std::move(models);
  return server;
}

Status MakeReady(const ServerChoice& choice, Server& server, SignalWatch& signals) {
  if (server.address.url.empty()) RETURN_IF_ERROR(StartDaemon(choice, server));
  return WaitUntilReady(server, signals);
}

}  // namespace thermocline::tools
