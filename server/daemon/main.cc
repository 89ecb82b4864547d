// `thermoclined`, the daemon. It listens at once, loads the model, and serves until SIGTERM has
// been handled.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <thread>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/thread_priority.h"
#include "server/core/examined_model.h"
#include "server/core/run_guarded.h"
#include "server/core/served_models.h"
#include "server/core/service.h"
#include "server/daemon/config_file.h"
#include "server/daemon/config_schema.h"
#include "server/daemon/heap_trim.h"
#include "server/daemon/life_cycle.h"
#include "server/daemon/systemd.h"
#include "server/grpc/grpc_server.h"
#include "server/http/listener.h"
#include "server/metrics/metric_tables.h"
#include "server/routes/routes.h"

namespace thermocline::server {
namespace {

namespace asio = boost::asio;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitConfig = 78;                       // EX_CONFIG: systemd does not restart on it
constexpr std::chrono::milliseconds kLastLines{500};  // for log lines, whose reader may be gone
constexpr int kMappedBytes = 256 << 10;  // larger allocations return to the system when freed
// glibc would give each thread a heap of its own, and keep what was freed in each: with them gRPC's
// calls of one client took 130 MiB, here 60.
constexpr int kArenas = 2;
constexpr unsigned kEndSeconds = 3, kLastSeconds = 1;
constexpr unsigned kEngineSeconds = 30;  // for an engine that writes its records

// Limits the time of shutdown: after `seconds` the process exits with `status`. gRPC's library
// would wait forever for threads that it could not start.
volatile std::sig_atomic_t end_status = kExitFailed;
void EndAnyway(int) { std::_Exit(end_status); }
void BoundTheEnd(unsigned seconds, int status) {
  end_status = status;
  std::signal(SIGALRM, EndAnyway);
  ::alarm(seconds);
}

// The configuration's source.
struct Source {
  std::string path;
  std::vector<std::string> overrides;
};

// The serving threads, which end when `life_io` does, even if memory runs out before they are
// joined.
class ServingThreads {
 public:
  ServingThreads(asio::io_context& io, asio::io_context& life_io, Service& service)
      : io_(io), life_io_(life_io), service_(service) {}
  ~ServingThreads() {
    life_io_.stop();
    if (!ends_) io_.stop();
    Join();
  }
  ServingThreads(const ServingThreads&) = delete;
  ServingThreads& operator=(const ServingThreads&) = delete;

  void Start(int http_threads) {
    threads_.reserve(http_threads + 1U);
    for (int i = 0; i < http_threads; ++i) {
      threads_.emplace_back([this] {
        base::AskForShortTurns();
        RunGuarded(io_);
      });
      pthread_setname_np(threads_.back().native_handle(), StrCat("http-", i).c_str());
    }
    // The order matters: a plan made by a worker holds a queue place of the engine until a session
    // takes it.
    threads_.emplace_back([this] {
      RunGuarded(life_io_);
      BoundTheEnd(kEndSeconds, kExitFailed);
      service_.models()->StopWorkers();
      io_.stop();
    });
    ends_ = true;
    pthread_setname_np(threads_.back().native_handle(), "life-cycle");
  }
  void Join() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

 private:
  asio::io_context &io_, &life_io_;
  Service& service_;
  bool ends_ = false;  // the other threads end with life_io_
  std::vector<std::thread> threads_;
};

int ExitStatus(const Service& service, const Status& loaded) {
  if (service.failed()) return kExitFailed;                           // systemd restarts it
  if (loaded.code() == StatusCode::kUnavailable) return kExitFailed;  // a device may come back
  return loaded.ok() ? 0 : kExitConfig;
}

// Logs the first model: its size, place and defaults. Requires: it is held.
void LogFirstModel(ServedModels& models) {
  const Service& service = models.front();
  if (service.engine() == nullptr) {
    base::LogWarning("ready: without ", service.model_name(), ", which the folder holds");
    return;
  }
  const EngineStats stats = service.engine()->Stats();
  base::LogInfo("ready: ", service.model_name(), " (", stats.model_format, ", ",
                stats.num_parameters / 1'000'000, "M parameters, context ", stats.context_length,
                ", ", stats.threads, " threads, ", stats.cpu_isa, ") loaded in ",
                static_cast<int>(stats.load_s * 1000), " ms");
  const std::string own = ToString(service.engine()->sampling());
  base::LogInfo("sampling where a request is silent: ", ToString(service.sampling_defaults()),
                " (the model recommends ", own.empty() ? "nothing" : own, ")");
  if (stats.predictor_bytes > 0) {
    base::LogInfo("predictors: ", stats.predictor_bytes >> 10, " KiB",
                  stats.side_car.empty() ? "" : " with " + stats.side_car);
  }
}

int Serve(const std::shared_ptr<const ReloadableConfig>& reloadable, const Source& source) {
  const ServerConfig& config = reloadable->config;
  ::mallopt(M_ARENA_MAX, kArenas);
  // Sessions, owned by the io_context, use the service; the engine's callbacks post to the
  // io_context. So the engine ends first (StopEngine below), then the io_context, then the service.
  const auto created = ServedModels::Create(reloadable);
  if (!created.ok()) {
    base::LogError(created.status().message());
    NotifyFailed(EINVAL, created.status().message());
    return kExitConfig;
  }
  ServedModels& models = **created;
  Service& service = models.front();
  asio::io_context io(config.http_threads);
  // A separate io_context, so that signals and the watchdog do not wait for requests.
  asio::io_context life_io(1);
  const auto listener =
      http::Listener::Create(io, service, routes::AllRoutes(), TakePassedSockets());
  if (!listener.ok()) {
    base::LogError(listener.status().message());
    NotifyFailed(EADDRNOTAVAIL, listener.status().message());
    return listener.status().code() == StatusCode::kInvalidArgument ? kExitConfig : kExitFailed;
  }
  const auto grpc = rpc::GrpcServer::Create(service);
  if (!grpc.ok()) {
    base::LogError(grpc.status().message());
    NotifyFailed(EADDRNOTAVAIL, grpc.status().message());
    return grpc.status().code() == StatusCode::kUnavailable ? kExitFailed : kExitConfig;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed log must not end the daemon
  Reloader reloader(service, source.path, source.overrides);
  reloader.Add([&](const ReloadableConfig& fresh) { return (*listener)->PrepareReload(fresh); });
  const auto life = std::make_shared<LifeCycle>(life_io, service, reloader);
  life->Start();
  ::mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  std::make_shared<HeapTrim>(life_io, service)->Start();
  (*listener)->Start();
  ServingThreads threads(io, life_io, service);
  threads.Start(config.http_threads);
  auto held = models.Hold("", ServedModels::Purpose::kLook);  // with keep_alive 0 it could sleep
  const Status loaded = models.LoadFirst();
  if (loaded.ok()) {
    LogFirstModel(models);
    held.reset();
    life->Ready();
  } else {
    base::LogError("the model cannot be served: ", loaded.message());
    NotifyFailed(EINVAL, "the model cannot be served: " + loaded.message());
    life_io.stop();
  }
  threads.Join();
  if (*grpc != nullptr) (*grpc)->Shutdown();
  // An engine or a loader that hangs does not keep the process, and a second signal ends it at
  // once.
  BoundTheEnd(kEngineSeconds, kExitFailed);
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, EndAnyway);
  models.StopEngines();
  const int status = ExitStatus(service, loaded);
  BoundTheEnd(kLastSeconds, status);
  base::LogInfo("stopped");
  return status;
}

// Disables core dumps: memory holds prompts and clients' keys, which must not reach a disk.
void ForbidCores() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

// Raises the limit on descriptors to the hard limit.
void RaiseDescriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int PrintKeyLine(const std::string& name) {
  std::string key;
  std::getline(std::cin, key);
  const auto line = ApiKeys::MakeLine(name, key);
  if (!line.ok()) {
    std::fprintf(stderr, "thermoclined: %s\n", line.status().message().c_str());
    return kExitUsage;
  }
  std::printf("%s\n", line->c_str());
  return 0;
}

// The log goes to descriptor 2, which must not become that of a socket.
void OpenMissingDescriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

int Main(int argc, char** argv) {
  OpenMissingDescriptors();
  std::signal(SIGHUP, SIG_IGN);  // until the configuration can be read again
  CLI::App app{"Thermocline: serves language models over HTTP (OpenAI's API).", "thermoclined"};
  std::string path;
  std::vector<std::string> overrides;
  std::string key_name, model, host;
  int port = -1;
  bool check = false, metrics_doc = false, config_schema = false;
  app.add_option("--config", path,
                 "Configuration file (YAML); every key is in config/thermocline.yaml");
  app.add_option("MODEL,-m,--model", model, "The model to serve: model.path");
  app.add_option("--host", host, "The address to listen on: server.host");
  app.add_option("--port", port, "The port to listen on: server.port");
  app.add_option("--set", overrides, "Override keys: --set server.port=8081")->allow_extra_args();
  app.add_flag("--check", check,
               "Read the configuration, its keys and certificates, say whether they are valid, and "
               "exit");
  app.add_flag("--config-schema", config_schema,
               "Print the configuration's keys, ranges and defaults as JSON Schema and exit");
  app.add_flag("--metrics-doc", metrics_doc, "Print the tables of docs/metrics.md and exit");
  app.add_option("--hash-key", key_name,
                 "Read a key from standard input, print its line of server.api_keys_file for the "
                 "client of this name, and exit");
  app.set_version_flag("--version", "thermoclined " THERMOCLINE_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (metrics_doc) {
    std::fputs(MetricTables().c_str(), stdout);
    return 0;
  }
  if (config_schema) {
    std::puts(ConfigSchema().Dump(2).c_str());
    return 0;
  }
  if (app.count("--hash-key") > 0) return PrintKeyLine(key_name);
  if (!model.empty()) overrides.push_back("model.path=" + model);
  if (!host.empty()) overrides.push_back("server.host=" + host);
  if (app.count("--port") > 0) overrides.push_back(StrCat("server.port=", port));
  const auto config = LoadServerConfig(path, overrides);
  const auto reloadable = config.ok() ? MakeReloadableConfig(*config) : config.status();
  if (!reloadable.ok()) {
    std::fprintf(stderr, "thermoclined: %s\n", reloadable.status().message().c_str());
    NotifyFailed(EINVAL, reloadable.status().message());
    return kExitConfig;
  }
  if (check) {
    Status usable = http::CheckTls(*config);
    if (usable.ok()) usable = http::CheckSockets(*config);
    if (!usable.ok()) {
      std::fprintf(stderr, "thermoclined: %s\n", usable.message().c_str());
      return kExitConfig;
    }
    std::printf("the configuration is valid\n");
    return 0;
  }
  ConfigureLog(*config);
  base::StartLogThread();
  ForbidCores();
  RaiseDescriptors();
  const int status = Serve(*reloadable, {path, overrides});
  base::FlushLog(kLastLines);
  return status;
}

}  // namespace
}  // namespace thermocline::server

// NOLINTNEXTLINE(bugprone-exception-escape): what is thrown here ends the process with its message
int main(int argc, char** argv) {
  namespace server = thermocline::server;
  try {
    if (argc == 3 && std::string_view(argv[1]) == server::kExamineFlag)
      return server::PrintExamination(argv[2]);
    return thermocline::server::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("thermoclined: this machine has no memory left\n", stderr);
    return thermocline::server::kExitFailed;
  } catch (const std::exception& error) {  // a thread or a descriptor could not be created
    std::fprintf(stderr, "thermoclined: this machine lacks something to start with: %s\n",
                 error.what());
    return thermocline::server::kExitFailed;
  }
}
