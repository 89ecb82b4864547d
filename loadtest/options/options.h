// The parsed options of `thermocline-load`. option_table.h has their names.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/client/openai_body.h"
#include "loadtest/client/url.h"
#include "loadtest/measure/slo.h"
#include "loadtest/workload/workload.h"

namespace thermocline::loadtest {

enum class Api { kHttp, kGrpc };
inline constexpr std::array<std::string_view, 2> kApiNames = {"http", "grpc"};
enum class ArrivalKind { kPoisson, kGamma, kConstant };
inline constexpr std::array<std::string_view, 3> kArrivalNames = {"poisson", "gamma", "constant"};
enum class SweepOver { kConcurrency, kRate };
inline constexpr std::array<std::string_view, 2> kSweepNames = {"concurrency", "rate"};

struct LoadOptions {
  // The server.
  Url url = {};
  Api api = Api::kHttp;
  std::string model = {}, api_key = {}, ca_file = {}, metrics_url = {};
  bool verify = true, keep_alive = true;
  Route route = Route::kChat;
  std::optional<double> temperature = {};
  std::string extra_body = {};
  double timeout_s = 120;

  // The load.
  int concurrency = 1;
  double rate = 0;  // above 0: open loop
  ArrivalKind arrival = ArrivalKind::kPoisson;
  double burstiness = 1;
  std::string trace_file = {}, dataset_file = {};
  double trace_speed = 1, duration_s = 10;
  std::optional<std::uint64_t> requests = {};
  int warmup = 0, in_flight_max = 1024;
  WorkloadOptions workload = {};
  std::optional<SweepOver> sweep = {};
  std::vector<double> sweep_steps = {};  // empty: double the load until it is beyond the knee

  // The limits, the watched process and the output.
  std::vector<SloTerm> slo = {};
  GoodLimits good = {};
  bool soak = false;
  int pid = 0;                               // 0 = no process is watched
  std::optional<double> rss_slope_max = {};  // bytes per hour
  std::string report_file = {}, raw_file = {};
  bool json = false;
  std::vector<std::string> arguments = {};  // as given, without the key

  bool open_loop() const { return rate > 0 || !workload.trace.empty(); }
};

}  // namespace thermocline::loadtest
