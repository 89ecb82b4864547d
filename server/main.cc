// `thermoclined`: the daemon. Listens at once, loads the model, serves until SIGTERM has been
// honoured.
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/base/log.h"
#include "server/http/listener.h"
#include "server/server_config.h"
#include "server/service.h"

namespace thermocline::server {
namespace {

namespace asio = boost::asio;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitConfig = 78;  // EX_CONFIG: systemd does not restart on it

// Waits for running generations, at most drain_timeout_s, then stops everything.
class Drain : public std::enable_shared_from_this<Drain> {
 public:
  Drain(asio::io_context& io, Service& service) : io_(io), service_(service), timer_(io) {}

  void Begin() {
    base::LogInfo("draining: ", service_.active_requests.load(), " requests have ",
                  service_.config().drain_timeout_s, " s to end");
    service_.BeginDrain();
    deadline_ =
        std::chrono::steady_clock::now() + std::chrono::seconds(service_.config().drain_timeout_s);
    Poll();
  }

 private:
  void Poll() {
    const bool late = std::chrono::steady_clock::now() >= deadline_;
    // Connections that were just accepted get their 503 first.
    idle_polls_ = service_.active_requests == 0 ? idle_polls_ + 1 : 0;
    if (idle_polls_ >= kIdlePolls || (late && cut_off_)) return io_.stop();
    if (late && !cut_off_) {
      base::LogWarning("drain_timeout_s is over; ", service_.active_requests.load(),
                       " requests are cut off");
      service_.CutOff();
      cut_off_ = true;
      deadline_ += kFarewell;
    }
    timer_.expires_after(std::chrono::milliseconds(20));
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) self->Poll();
    });
  }

  static constexpr int kIdlePolls = 5;                 // of 20 ms
  static constexpr std::chrono::seconds kFarewell{2};  // for the last error events to be written

  asio::io_context& io_;
  Service& service_;
  asio::steady_timer timer_;
  bool cut_off_ = false;
  int idle_polls_ = 0;
  std::chrono::steady_clock::time_point deadline_;
};

void WaitForSignals(asio::signal_set& signals, asio::io_context& io, Service& service,
                    bool draining) {
  signals.async_wait([&signals, &io, &service, draining](boost::system::error_code error, int) {
    if (error) return;
    if (draining) return io.stop();  // the second signal: at once
    if (service.engine() == nullptr) {
      base::LogInfo("stopped while loading");
      std::_Exit(0);  // nothing is served yet, and loading cannot be interrupted
    }
    std::make_shared<Drain>(io, service)->Begin();
    WaitForSignals(signals, io, service, true);
  });
}

int Serve(const ServerConfig& config) {
  // Sessions, which the io_context owns, use the service; the engine's callbacks post to the
  // io_context. So the engine ends first (StopEngine below), then the io_context, then the service.
  Service service(config);
  asio::io_context io(config.http_threads);
  const auto listener = http::Listener::Create(io, service);
  if (!listener.ok()) {
    base::LogError(listener.status().message());
    return listener.status().code() == StatusCode::kInvalidArgument ? kExitConfig : kExitFailed;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed log must not end the daemon
  asio::signal_set signals(io, SIGTERM, SIGINT, SIGHUP);
  WaitForSignals(signals, io, service, false);
  (*listener)->Start();
  base::LogInfo("listening on http://", config.host, ":", (*listener)->port(), "/");
  std::vector<std::thread> threads;
  for (int i = 0; i < config.http_threads; ++i) {
    threads.emplace_back([&io] { io.run(); });
    pthread_setname_np(threads.back().native_handle(), StrCat("http-", i).c_str());
  }
  const Status loaded = service.Load();
  if (loaded.ok()) {
    const EngineStats stats = service.engine()->Stats();
    base::LogInfo("ready: ", service.model_name(), " (", stats.model_format, ", ",
                  stats.num_parameters / 1'000'000, "M parameters, context ", stats.context_length,
                  ", ", stats.threads, " threads, ", stats.cpu_isa, ") loaded in ",
                  static_cast<int>(stats.load_s * 1000), " ms");
    if (stats.predictor_bytes > 0) {
      base::LogInfo("predictors: ", stats.predictor_bytes >> 10, " KiB",
                    stats.side_car.empty() ? "" : " with " + stats.side_car);
    }
  } else {
    base::LogError("the model cannot be served: ", loaded.message());
    io.stop();
  }
  for (std::thread& thread : threads) thread.join();
  service.StopEngine();
  base::LogInfo("stopped");
  if (service.failed()) return kExitFailed;                           // systemd starts it anew
  if (loaded.code() == StatusCode::kUnavailable) return kExitFailed;  // a device may come back
  return loaded.ok() ? 0 : kExitConfig;
}

}  // namespace
}  // namespace thermocline::server

int main(int argc, char** argv) {
  using namespace thermocline;  // NOLINT: a main function
  CLI::App app{"Thermocline: serves one language model over HTTP (OpenAI's API).", "thermoclined"};
  std::string path;
  std::vector<std::string> overrides;
  bool check = false;
  app.add_option("--config", path,
                 "Configuration file (YAML); every key is in config/thermocline.yaml");
  app.add_option("--set", overrides, "Override keys: --set server.port=8081")->allow_extra_args();
  app.add_flag("--check", check, "Read the configuration, say whether it is valid, and exit");
  app.set_version_flag("--version", "thermoclined 0.1.0");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : server::kExitUsage;
  }
  const auto config = server::LoadServerConfig(path, overrides);
  if (!config.ok()) {
    std::fprintf(stderr, "thermoclined: %s\n", config.status().message().c_str());
    return server::kExitConfig;
  }
  if (check) {
    std::printf("the configuration is valid\n");
    return 0;
  }
  const auto level = base::ParseLogLevel(config->log_level);
  base::ConfigureLog(level.ok() ? *level : base::LogLevel::kInfo, config->log_format == "json");
  return server::Serve(*config);
}
