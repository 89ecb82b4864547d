#include "loadtest/run/load_test.h"

#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "engine/base/output_file.h"
#include "loadtest/client/grpc_client.h"
#include "loadtest/run/driver.h"
#include "loadtest/run/probe.h"
#include "loadtest/run/progress.h"
#include "loadtest/run/sweep.h"

namespace thermocline::loadtest {
namespace {

constexpr std::uint64_t kWarmupId = std::uint64_t{1} << 40;  // above all measured requests' ids

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &parts));
}

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class LoadTest {
 public:
  explicit LoadTest(const LoadOptions& options) { report_.options = options; }

  Result<RunReport> Run() {
    RETURN_IF_ERROR(Prepare());
    if (!options().sweep.has_value()) {
      RunOnce(options().open_loop() ? options().rate : options().concurrency, "");
    } else {
      RunSweep();
    }
    progress_.Clear();
    if (raw_ != nullptr) RETURN_IF_ERROR(raw_->Close());
    CheckObjectives(report_);
    return std::move(report_);
  }

 private:
  const LoadOptions& options() const { return report_.options; }

  Status Prepare() {
    report_.host = HostName();
    report_.started = LocalTime();
    if (options().pid > 0) RETURN_IF_ERROR(ReadProcessMemory(options().pid).status());
    RETURN_IF_ERROR(CheckOutputs());
    if (!options().raw_file.empty()) {
      ASSIGN_OR_RETURN(raw_, RawLog::Create(options().raw_file));
    }
    // Checks that the report can be written before the run, not hours later.
    if (!options().report_file.empty())
      RETURN_IF_ERROR(base::FileWriter::Create(options().report_file).status());
    RETURN_IF_ERROR(options().api == Api::kHttp ? ConnectHttp() : ConnectGrpc());
    RETURN_IF_ERROR(FindMetrics());
    WorkloadOptions& workload = report_.options.workload;
    if (workload.dataset.empty()) {
      ASSIGN_OR_RETURN(workload.scale, Calibrate(io_, *client_, report_.server));
    }
    workload_ = MakeWorkload(workload);
    return WarmUp();
  }

  // A run's files may replace an earlier run's.
  Status CheckOutputs() const {
    const base::OutputKind page = base::KindByMagic("an HTML page", "<!DOCTYPE html>");
    const auto is_log = [](const base::File& file) {
      const std::string begin = base::BeginOf(file, 4096);
      return begin.starts_with("{") && begin.find("\"t_sched\"") != std::string::npos;
    };
    if (!options().report_file.empty())
      RETURN_IF_ERROR(base::CheckReplaceable(options().report_file, page).Annotate("--report"));
    // Devices and pipes are written without this check, since no data can be lost.
    if (options().raw_file.empty() || !std::filesystem::is_regular_file(options().raw_file))
      return OkStatus();
    const base::OutputKind log{"a log of requests", is_log};
    return base::CheckReplaceable(options().raw_file, log).Annotate("--raw");
  }

  Status ConnectHttp() {
    const LoadOptions& o = options();
    const HttpOptions http{
        .url = o.url, .api_key = o.api_key, .ca_file = o.ca_file, .verify = o.verify};
    ASSIGN_OR_RETURN(HttpTarget target, ResolveTarget(http));
    report_.server = ReadModels(target);
    if (!o.model.empty()) report_.server.model = o.model;
    client_ = std::make_unique<HttpClient>(
        io_, HttpClient::Options{.target = std::move(target),
                                 .body = {.route = o.route,
                                          .model = report_.server.model,
                                          .temperature = o.temperature,
                                          .extra = o.extra_body},
                                 .timeout_s = o.timeout_s,
                                 .keep_alive = o.keep_alive});
    return OkStatus();
  }

  Status ConnectGrpc() {
    const LoadOptions& o = options();
    const GrpcOptions grpc{.url = o.url,
                           .api_key = o.api_key,
                           .ca_file = o.ca_file,
                           .temperature = o.temperature,
                           .timeout_s = o.timeout_s};
    ASSIGN_OR_RETURN(client_, MakeGrpcClient(io_, grpc));
    ASSIGN_OR_RETURN(report_.server.model, GrpcModelName(grpc));
    return OkStatus();
  }

  // Finds the server's metrics: --metrics-url, else the HTTP server's own.
  Status FindMetrics() {
    const LoadOptions& o = options();
    if (o.metrics_url.empty() && o.api == Api::kGrpc) return OkStatus();
    HttpOptions http{.url = o.url, .api_key = o.api_key, .ca_file = o.ca_file, .verify = o.verify};
    metrics_path_ = RootPath(o.url, "metrics");
    if (!o.metrics_url.empty()) {
      ASSIGN_OR_RETURN(http.url, ParseUrl(o.metrics_url));
      // The key is sent only to the server under test: not to another origin, nor in the clear.
      if (http.url.origin() != o.url.origin()) http.api_key.clear();
      metrics_path_ = http.url.path.empty() ? "/metrics" : http.url.path;
    }
    ASSIGN_OR_RETURN(metrics_, ResolveTarget(http));
    if (!Scrape(*metrics_, metrics_path_).has_value()) {
      if (!o.metrics_url.empty())
        report_.server.notes.push_back("no known metrics at " + o.metrics_url);
      metrics_.reset();
    }
    return OkStatus();
  }

  Status WarmUp() {
    if (options().warmup == 0) return OkStatus();
    Recorder unused(false, {}, nullptr, "");
    const LoadShape shape{.users = std::max(1, options().concurrency),
                          .duration_s = 3600,
                          .requests_max = static_cast<std::uint64_t>(options().warmup),
                          .first_id = kWarmupId};
    Driver driver(io_, *client_, *workload_, shape,
                  {.on_answer = [&](const Answer& answer) { unused.Add(answer); },
                   .on_tick =
                       [&](const Pace& pace) {
                         progress_.Show("warm-up", shape.requests_max, shape.duration_s, pace,
                                        client_->chunk_counter(), unused);
                       }});
    driver.Run();
    if (driver.interrupted()) return base::Cancelled("interrupted during the warm-up");
    if (unused.all().failed() > 0)
      report_.server.notes.push_back(StrCat(unused.all().failed(), " warm-up requests failed"));
    return OkStatus();
  }

  std::unique_ptr<ArrivalProcess> Arrivals(double rate) const {
    const LoadOptions& o = options();
    if (!o.workload.trace.empty()) {
      std::vector<double> times;
      for (const TraceEntry& entry : o.workload.trace) times.push_back(entry.time);
      return ArrivalsAt(std::move(times));
    }
    if (o.arrival == ArrivalKind::kConstant) return ConstantArrivals(rate);
    const double shape = o.arrival == ArrivalKind::kGamma ? o.burstiness : 1;
    return GammaArrivals(rate, shape, o.workload.seed);
  }

  // One run at a load: users, or requests per second.
  const RunResult& RunOnce(double load, const std::string& label) {
    const LoadOptions& o = options();
    RunResult& run = report_.runs.emplace_back();
    run.label = label;
    run.load = load;
    run.recorder = std::make_unique<Recorder>(o.open_loop(), o.good, raw_.get(), label);
    const auto arrivals = o.open_loop() ? Arrivals(load) : nullptr;
    const LoadShape shape{.users = arrivals == nullptr ? static_cast<int>(load) : 0,
                          .arrivals = arrivals.get(),
                          .in_flight_max = o.in_flight_max,
                          .duration_s = o.duration_s,
                          .requests_max = o.requests,
                          .drain_s = o.timeout_s,
                          .first_id = next_id_};
    const auto before = metrics_.has_value() ? Scrape(*metrics_, metrics_path_) : std::nullopt;
    Driver driver(io_, *client_, *workload_, shape,
                  {.on_answer = [&](const Answer& answer) { run.recorder->Add(answer); },
                   .on_tick = [&](const Pace& pace) { OnTick(pace, run); }});
    run.began_unix_s = UnixTime();
    driver.Run();
    next_id_ += driver.started() + o.in_flight_max;
    run.interrupted = driver.interrupted();
    run.throughput = ThroughputOf(run.recorder->all(), run.recorder->elapsed_s());
    AfterRun(before, run);
    return run;
  }

  void OnTick(const Pace& pace, RunResult& run) {
    run.recorder->timeline().SetInFlight(pace.now_s, pace.in_flight);
    if (options().pid > 0) {
      if (const auto memory = ReadProcessMemory(options().pid); memory.ok()) {
        run.memory.Add(pace.now_s, *memory);
      }
    }
    progress_.Show(run.label, options().requests, options().duration_s, pace,
                   client_->chunk_counter(), *run.recorder);
  }

  void AfterRun(const std::optional<MetricValues>& before, RunResult& run) {
    if (!metrics_.has_value()) return;
    if (options().workload.kind == WorkloadKind::kCancelStorm)
      run.idle = WaitUntilIdle(*metrics_, metrics_path_);
    const auto after = Scrape(*metrics_, metrics_path_);
    if (before.has_value() && after.has_value()) run.server = MetricsDelta(*before, *after);
  }

  void RunSweep() {
    const bool rate = options().sweep == SweepOver::kRate;
    SweepPlan plan(options().sweep_steps, rate ? options().rate : options().concurrency);
    while (const auto load = plan.Next()) {
      const RunResult& run = RunOnce(*load, StrCat(rate ? "rate " : "concurrency ", *load));
      const bool limited = !options().good.empty();
      plan.Add(*load, limited ? run.throughput.goodput : run.throughput.output_tokens_per_s);
      if (run.interrupted) break;
    }
    report_.knee = plan.knee();
  }

  asio::io_context io_;
  RunReport report_;
  std::unique_ptr<RawLog> raw_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Workload> workload_;
  std::optional<HttpTarget> metrics_;
  std::string metrics_path_;
  Progress progress_;
  std::uint64_t next_id_ = 0;
};

}  // namespace

Result<RunReport> RunLoadTest(const LoadOptions& options) { return LoadTest(options).Run(); }

}  // namespace thermocline::loadtest
