// The server of a launch: found at an address, or a daemon of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tools/launch/own_daemon.h"
#include "tools/launch/server_query.h"
#include "tools/launch/signal_watch.h"

namespace thermocline::tools {

inline constexpr const char* kDefaultUrl = "http://127.0.0.1:8080";
inline constexpr int kExitSignalled = 128;  // and the signal's number, as a shell has it

// The options of the command line that choose a server; "" = not given.
struct ServerChoice {
  std::string url, model, cache, key_file;
  std::vector<std::string> set;

  DaemonSettings daemon() const { return {.model = model, .cache = cache, .set = set}; }
};

struct Server {
  // With the key of --api-key-file or THERMOCLINE_API_KEY. Without a URL: --model is to be served
  // by a daemon of this launch.
  ServerAddress address = {};
  ServerModels models = {};
  std::string model = {};                    // the name that the agent is given
  std::unique_ptr<OwnDaemon> own = nullptr;  // if this launch has started it
};

// Looks for the server at --url, or at the default address one that has the model of --model.
// Unavailable: nothing answers, and --model names nothing to serve; NotFound: the server has not
// that model; errors as ReadServerModels, and of reading --api-key-file.
Result<Server> FindServer(const ServerChoice& choice);

// Starts a daemon of its own where FindServer found no server, and waits until the model is loaded.
// Unavailable: the server is gone; Cancelled: a signal, which also sets the exit status.
Status MakeReady(const ServerChoice& choice, Server& server, SignalWatch& signals);

}  // namespace thermocline::tools
