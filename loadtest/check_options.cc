// What the texts of the command line mean, and which of them contradict each other.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

#include "engine/base/file.h"
#include "loadtest/option_texts.h"

namespace thermocline::loadtest {
namespace {

Status Bad(std::string_view name, std::string_view text, std::string_view expected) {
  return base::InvalidArgument(name, " '", base::Shorten(text, 100), "': expected ", expected)
      .WithField(name);
}

// The place of `text` among `names`.
Result<int> ParseChoice(std::string_view name, const std::string& text,
                        std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  std::string list;
  for (const std::string_view known : names) list += StrCat(list.empty() ? "" : ", ", known);
  return Bad(name, text, "one of " + list);
}

template <typename T>
Result<T> ParseWhole(std::string_view name, const std::string& text, T min, T max) {
  const auto value = base::ParseNumber<T>(text);
  if (!value.has_value() || *value < min || *value > max)
    return Bad(name, text, StrCat("a whole number from ", min, " to ", max));
  return *value;
}

Result<double> ParseReal(std::string_view name, const std::string& text, double min, double max) {
  const auto value = base::ParseNumber<double>(text);
  if (!value.has_value() || !(*value >= min && *value <= max))
    return Bad(name, text, StrCat("a number from ", min, " to ", max));
  return *value;
}

Result<double> ParseTime(std::string_view name, const std::string& text, double min) {
  constexpr double kTimeMax = 366.0 * 24 * 3600;
  const auto seconds = ParseDuration(text);
  if (!seconds.has_value() || *seconds < min || *seconds > kTimeMax)
    return Bad(name, text, "a time, as 90, 1.5s, 200ms, 10m or 24h");
  return *seconds;
}

Result<TokenRange> ParseTokens(std::string_view name, const std::string& text, int min) {
  const auto range = ParseTokenRange(text, min);
  if (!range.has_value())
    return Bad(name, text, StrCat("a number of tokens from ", min, " on, or LOW-HIGH"));
  return *range;
}

// Reads one group of options after the other; the first fault stays.
class Checker {
 public:
  Checker(const OptionTexts& texts, const Given& given) : t_(texts), given_(given) {}

  Result<LoadOptions> Check() {
    RETURN_IF_ERROR(CheckConflicts());
    RETURN_IF_ERROR(ReadServer());
    RETURN_IF_ERROR(ReadKey());
    RETURN_IF_ERROR(ReadLoad());
    RETURN_IF_ERROR(ReadWorkload());
    RETURN_IF_ERROR(ReadSweep());
    RETURN_IF_ERROR(ReadFiles());
    RETURN_IF_ERROR(ReadGoals());
    return std::move(o_);
  }

 private:
  bool Has(const char* name) const { return given_(name); }
  static Status Conflict(const char* a, std::string_view why) {
    return base::InvalidArgument(a, " ", why).WithField(a);
  }

  // `option` means something only with `condition`.
  Status Needs(const char* option, bool condition, std::string_view what) const {
    return Has(option) && !condition ? Conflict(option, StrCat("needs ", what)) : OkStatus();
  }
  Status Excludes(const char* option, const char* other) const {
    return Has(option) && Has(other) ? Conflict(option, StrCat("contradicts ", other)) : OkStatus();
  }

  Status CheckConflicts() const {
    constexpr std::pair<const char*, const char*> kPairs[] = {{"--rate", "--concurrency"},
                                                              {"--trace", "--concurrency"},
                                                              {"--trace", "--rate"},
                                                              {"--trace", "--arrival"},
                                                              {"--sweep", "--trace"},
                                                              {"--sweep", "--soak"},
                                                              {"--sweep", "--dataset"},
                                                              {"--sweep", "--pid"},
                                                              {"--api-key", "--api-key-file"},
                                                              {"--api-key", "--api-key-env"},
                                                              {"--api-key-file", "--api-key-env"},
                                                              {"--prompt-tokens", "--dataset"},
                                                              {"--insecure", "--ca-file"}};
    for (const auto& [option, other] : kPairs) RETURN_IF_ERROR(Excludes(option, other));
    const bool rate = Has("--rate") || t_.sweep == "rate";
    RETURN_IF_ERROR(Needs("--arrival", rate, "--rate"));
    RETURN_IF_ERROR(Needs("--burstiness", t_.arrival == "gamma", "--arrival gamma"));
    RETURN_IF_ERROR(Needs("--trace-speed", Has("--trace"), "--trace"));
    RETURN_IF_ERROR(Needs("--max-in-flight", rate || Has("--trace"), "--rate or --trace"));
    RETURN_IF_ERROR(Needs("--sweep-steps", Has("--sweep"), "--sweep"));
    RETURN_IF_ERROR(Needs("--soak", Has("--pid"), "--pid"));
    RETURN_IF_ERROR(Needs("--rss-slope-max", Has("--pid"), "--pid"));
    RETURN_IF_ERROR(CheckWorkloadOptions());
    return CheckProtocolOptions();
  }

  Status CheckWorkloadOptions() const {
    const std::string& w = t_.workload;
    const bool multi_turn = w == "multi-turn";
    RETURN_IF_ERROR(Needs("--share", w != "chat" && !multi_turn, "a mixed --workload"));
    RETURN_IF_ERROR(
        Needs("--long-prompt-tokens", w == "long-beside-short", "--workload long-beside-short"));
    RETURN_IF_ERROR(Needs("--read-pause", w == "slow-readers", "--workload slow-readers"));
    for (const char* name : {"--turns", "--shared-prefix-tokens", "--think-time"})
      RETURN_IF_ERROR(Needs(name, multi_turn, "--workload multi-turn"));
    RETURN_IF_ERROR(Needs("--dataset", !multi_turn && w != "long-beside-short",
                          "a --workload that does not make its own prompts"));
    return Needs("--trace", !multi_turn && w != "long-beside-short",
                 "a --workload that does not make its own lengths");
  }

  Status CheckProtocolOptions() const {
    const bool http = t_.api == "http";
    for (const char* name : {"--route", "--extra-body", "--no-keep-alive", "--insecure"})
      RETURN_IF_ERROR(Needs(name, http, "--api http"));
    return OkStatus();
  }

  Status ReadServer() {
    constexpr std::string_view kApis[] = {"http", "grpc"}, kRoutes[] = {"chat", "completions"};
    ASSIGN_OR_RETURN(o_.url, ParseUrl(t_.url));
    ASSIGN_OR_RETURN(const int api, ParseChoice("--api", t_.api, kApis));
    ASSIGN_OR_RETURN(const int route, ParseChoice("--route", t_.route, kRoutes));
    o_.api = static_cast<Api>(api);
    o_.route = static_cast<Route>(route);
    if (o_.api == Api::kGrpc && !o_.url.path.empty())
      return Bad("URL", t_.url, "no path with --api grpc, as 127.0.0.1:50051");
    if (!o_.url.tls && (Has("--insecure") || Has("--ca-file")))
      return Conflict(Has("--insecure") ? "--insecure" : "--ca-file", "needs an https:// URL");
    o_.model = t_.model;
    o_.ca_file = t_.ca_file;
    o_.metrics_url = t_.metrics_url;
    if (!t_.metrics_url.empty()) RETURN_IF_ERROR(ParseUrl(t_.metrics_url).status());
    o_.verify = !t_.insecure;
    o_.keep_alive = !t_.no_keep_alive;
    if (!t_.temperature.empty()) {
      ASSIGN_OR_RETURN(o_.temperature, ParseReal("--temperature", t_.temperature, 0, 2));
    }
    o_.extra_body = t_.extra_body;
    const auto extra = base::ParseJson(t_.extra_body);
    if (!t_.extra_body.empty() && !(extra.ok() && extra->is_object()))
      return Bad("--extra-body", t_.extra_body, "a JSON object");
    ASSIGN_OR_RETURN(o_.timeout_s, ParseTime("--timeout", t_.timeout, 0.001));
    return OkStatus();
  }

  Status ReadKey() {
    o_.api_key = t_.api_key;
    if (!t_.api_key_env.empty()) {
      const char* value = std::getenv(t_.api_key_env.c_str());
      if (value == nullptr) return Bad("--api-key-env", t_.api_key_env, "a variable that is set");
      o_.api_key = value;
    }
    if (!t_.api_key_file.empty()) {
      ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(t_.api_key_file, 1u << 20));
      o_.api_key = text.substr(0, text.find_first_of("\r\n"));
    }
    const bool printable = std::all_of(o_.api_key.begin(), o_.api_key.end(),
                                       [](char c) { return c > ' ' && c < '\x7F'; });
    if (!printable) return base::InvalidArgument("the API key has spaces or control characters");
    return OkStatus();
  }

  Status ReadLoad() {
    constexpr std::string_view kArrivals[] = {"poisson", "gamma", "constant"};
    constexpr double kRateMax = 1e5;
    ASSIGN_OR_RETURN(o_.concurrency, ParseWhole("--concurrency", t_.concurrency, 1, 20000));
    if (Has("--rate")) {
      ASSIGN_OR_RETURN(o_.rate, ParseReal("--rate", t_.rate, 1e-6, kRateMax));
    }
    ASSIGN_OR_RETURN(const int arrival, ParseChoice("--arrival", t_.arrival, kArrivals));
    o_.arrival = static_cast<ArrivalKind>(arrival);
    ASSIGN_OR_RETURN(o_.burstiness, ParseReal("--burstiness", t_.burstiness, 0.001, 1000));
    ASSIGN_OR_RETURN(o_.trace_speed, ParseReal("--trace-speed", t_.trace_speed, 1e-6, 1e6));
    ASSIGN_OR_RETURN(o_.duration_s, ParseTime("--duration", t_.duration, 0.001));
    if (Has("--requests")) {
      ASSIGN_OR_RETURN(o_.requests,
                       ParseWhole<std::uint64_t>("--requests", t_.requests, 1, 1'000'000'000));
      constexpr double kNoEnd = 366.0 * 24 * 3600;
      if (!Has("--duration")) o_.duration_s = kNoEnd;
    }
    ASSIGN_OR_RETURN(o_.warmup, ParseWhole("--warmup", t_.warmup, 0, 100000));
    ASSIGN_OR_RETURN(o_.in_flight_max, ParseWhole("--max-in-flight", t_.max_in_flight, 1, 20000));
    return OkStatus();
  }

  Status ReadWorkload() {
    WorkloadOptions& w = o_.workload;
    ASSIGN_OR_RETURN(const int kind, ParseChoice("--workload", t_.workload, kWorkloadNames));
    w.kind = static_cast<WorkloadKind>(kind);
    ASSIGN_OR_RETURN(w.seed, ParseWhole<std::uint64_t>("--seed", t_.seed, 0, UINT64_MAX));
    ASSIGN_OR_RETURN(w.prompt_tokens, ParseTokens("--prompt-tokens", t_.prompt_tokens, 1));
    ASSIGN_OR_RETURN(w.max_tokens, ParseTokens("--max-tokens", t_.max_tokens, 0));
    w.ignore_eos = t_.ignore_eos;
    ASSIGN_OR_RETURN(w.share, ParseReal("--share", t_.share, 0, 1));
    ASSIGN_OR_RETURN(w.long_prompt_tokens,
                     ParseTokens("--long-prompt-tokens", t_.long_prompt_tokens, 1));
    ASSIGN_OR_RETURN(w.read_pause_s, ParseTime("--read-pause", t_.read_pause, 0.001));
    ASSIGN_OR_RETURN(w.turns, ParseWhole("--turns", t_.turns, 1, 10000));
    ASSIGN_OR_RETURN(w.shared_prefix_tokens,
                     ParseWhole("--shared-prefix-tokens", t_.shared_prefix_tokens, 0, 10000000));
    ASSIGN_OR_RETURN(w.think_s, ParseTime("--think-time", t_.think_time, 0));
    return OkStatus();
  }

  Status ReadSweep() {
    if (t_.sweep.empty()) return OkStatus();
    constexpr std::string_view kSweeps[] = {"concurrency", "rate"};
    ASSIGN_OR_RETURN(const int over, ParseChoice("--sweep", t_.sweep, kSweeps));
    o_.sweep = over == 0 ? SweepOver::kConcurrency : SweepOver::kRate;
    if (Has("--rate") && over == 0) return Conflict("--rate", "contradicts --sweep concurrency");
    if (Has("--concurrency") && over == 1)
      return Conflict("--concurrency", "contradicts --sweep rate");
    if (over == 1 && !Has("--rate")) o_.rate = 1;
    for (std::size_t at = 0; at < t_.sweep_steps.size();) {
      const std::size_t end = std::min(t_.sweep_steps.find(',', at), t_.sweep_steps.size());
      const std::string text = t_.sweep_steps.substr(at, end - at);
      ASSIGN_OR_RETURN(const double step, ParseReal("--sweep-steps", text, 1e-6, 20000));
      if (over == 0 && (step < 1 || step != std::floor(step)))
        return Bad("--sweep-steps", text, "whole numbers of users");
      o_.sweep_steps.push_back(step);
      at = end + 1;
    }
    return OkStatus();
  }

  Status ReadFiles() {
    if (!t_.dataset.empty()) {
      ASSIGN_OR_RETURN(o_.workload.dataset, ReadDataset(t_.dataset));
    }
    o_.dataset_file = t_.dataset;
    o_.trace_file = t_.trace;
    if (t_.trace.empty()) return OkStatus();
    ASSIGN_OR_RETURN(o_.workload.trace, ReadTrace(t_.trace, o_.trace_speed));
    if (!Has("--duration")) o_.duration_s = o_.workload.trace.back().time + 1;
    return OkStatus();
  }

  Status ReadGoals() {
    ASSIGN_OR_RETURN(o_.slo, ParseSlo(t_.slo));
    ASSIGN_OR_RETURN(o_.good, ParseGoodLimits(t_.goodput));
    if (o_.good.empty()) o_.good = LimitsOf(o_.slo);
    o_.soak = t_.soak;
    if (Has("--pid")) {
      ASSIGN_OR_RETURN(o_.pid, ParseWhole("--pid", t_.pid, 1, INT32_MAX));
    }
    if (Has("--rss-slope-max")) {
      const auto bytes = base::ParseBytes(t_.rss_slope_max);
      if (!bytes.has_value()) return Bad("--rss-slope-max", t_.rss_slope_max, "a size, as 1MiB");
      o_.rss_slope_max = static_cast<double>(*bytes);
    }
    o_.report_file = t_.report;
    o_.raw_file = t_.raw;
    o_.json = t_.json;
    return OkStatus();
  }

  const OptionTexts& t_;
  const Given& given_;
  LoadOptions o_;
};

}  // namespace

Result<LoadOptions> CheckOptions(const OptionTexts& texts, const Given& given) {
  return Checker(texts, given).Check();
}

}  // namespace thermocline::loadtest
