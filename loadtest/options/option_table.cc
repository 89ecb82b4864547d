#include "loadtest/options/option_table.h"

#include "loadtest/options/special_values.h"

namespace thermocline::loadtest {
namespace {

using Rows = std::vector<LoadOption>;
using enum WorkloadKind;

OptionRule NeedsHttp(const LoadOptions& o) {
  return {"needs --api http", [&o] { return o.api == Api::kHttp; }};
}
OptionRule NeedsTls(const LoadOptions& o) {
  return {"needs an https:// URL", [&o] { return o.url.tls; }};
}
OptionRule NeedsMultiTurn(const LoadOptions& o) {
  return {"needs --workload multi-turn", [&o] { return o.workload.kind == kMultiTurn; }};
}
OptionRule NeedsPid(const LoadOptions& o) {
  return {"needs --pid", [&o] { return o.pid > 0; }};
}
// Two workloads choose the lengths of their prompts themselves.
OptionRule NeedsOtherWorkload(const LoadOptions& o, const char* why) {
  return {why,
          [&o] { return o.workload.kind != kMultiTurn && o.workload.kind != kLongBesideShort; }};
}

// --api precedes the URL, whose parsing depends on it. So does --sweep its steps.
Rows ServerRows(LoadOptions& o) {
  return {
      {"--api", Choice(o.api, kApiNames), "the server's protocol"},
      {"URL", ServerUrl(o), "the server, http://127.0.0.1:8080; of gRPC: 127.0.0.1:50051"},
      {.names = "--route",
       .value = Choice(o.route, kRouteNames),
       .help = "what is asked of it",
       .rules = {NeedsHttp(o)}},
      {"--model", Text(o.model), "the model's name", "the first of GET /v1/models"},
      {"--temperature", Real(o.temperature, 0, 2), "of sampling", "the server's"},
      {.names = "--extra-body",
       .value = JsonObjectText(o.extra_body),
       .help = "a JSON object whose members each request has",
       .rules = {NeedsHttp(o)}},
      {"--timeout", Seconds(o.timeout_s, 0.001), "of one request, from sending"},
      {.names = "--no-keep-alive",
       .value = Flag(o.keep_alive, false),
       .help = "a connection for each request",
       .rules = {NeedsHttp(o)}},
      {.names = "--api-key",
       .value = Key(o.api_key),
       .help = "sent as a bearer token; others see it in ps",
       .excludes = {"--api-key-file", "--api-key-env"},
       .secret = true},
      {.names = "--api-key-file",
       .value = KeyOfFile(o.api_key),
       .help = "the first line of a file is the key",
       .excludes = {"--api-key-env"}},
      {"--api-key-env", KeyOfVariable(o.api_key), "the environment variable that has the key"},
      {.names = "--ca-file",
       .value = Text(o.ca_file),
       .help = "certificate authorities (PEM) in place of the system's",
       .rules = {NeedsTls(o)}},
      {.names = "--insecure",
       .value = Flag(o.verify, false),
       .help = "certificates are not checked",
       .excludes = {"--ca-file"},
       .rules = {NeedsHttp(o), NeedsTls(o)}},
      {"--metrics-url", UrlText(o.metrics_url), "the server's Prometheus page",
       "/metrics beside the API"},
  };
}

Rows LoadRows(LoadOptions& o) {
  const auto has_rate = [&o] { return o.rate > 0 || o.sweep == SweepOver::kRate; };
  return {
      {.names = "-c,--concurrency",
       .value = Integer(o.concurrency, 1, 20000),
       .help = "closed loop: users at once",
       .rules = {{"contradicts --sweep rate", [&o] { return o.sweep != SweepOver::kRate; }}}},
      {.names = "-r,--rate",
       .value = Real(o.rate, 1e-6, 1e5),
       .help = "open loop: requests per second",
       .excludes = {"--concurrency"},
       .rules = {{"contradicts --sweep concurrency",
                  [&o] { return o.sweep != SweepOver::kConcurrency; }}}},
      {.names = "--arrival",
       .value = Choice(o.arrival, kArrivalNames),
       .help = "with --rate: gaps between requests",
       .rules = {{"needs --rate", has_rate}}},
      {.names = "--burstiness",
       .value = Real(o.burstiness, 0.001, 1000),
       .help = "of gamma: shape; 1 is Poisson, below 1 come bursts",
       .rules = {{"needs --arrival gamma", [&o] { return o.arrival == ArrivalKind::kGamma; }}}},
      {.names = "--trace",
       .value = Text(o.trace_file),
       .help = "open loop: JSONL of times and lengths",
       .excludes = {"--concurrency", "--rate", "--arrival"},
       .rules = {NeedsOtherWorkload(o, "needs a --workload that does not make its own lengths")}},
      {.names = "--trace-speed",
       .value = Real(o.trace_speed, 1e-6, 1e6),
       .help = "plays a trace so many times as fast",
       .rules = {{"needs --trace", [&o] { return !o.trace_file.empty(); }}}},
      {.names = "--max-in-flight",
       .value = Integer(o.in_flight_max, 1, 20000),
       .help = "open loop: requests at once; others wait, their clock running",
       .rules = {{"needs --rate or --trace",
                  [&o, has_rate] { return has_rate() || !o.trace_file.empty(); }}}},
      {"-d,--duration", Seconds(o.duration_s, 0.001), "no request begins later: 90, 90s, 10m, 24h",
       "a whole trace"},
      {"-n,--requests", Integer(o.requests, 1, 1'000'000'000), "no more requests than these"},
      {"--warmup", Integer(o.warmup, 0, 100000), "requests before the run that are not measured"},
      {.names = "--sweep",
       .value = Choice(o.sweep, kSweepNames),
       .help = "a run for each step, to the knee; --duration is of a step",
       .excludes = {"--trace", "--soak", "--dataset", "--pid"}},
      {.names = "--sweep-steps",
       .value = SweepSteps(o),
       .help = "as 1,2,4,8",
       .otherwise = "doubled until the knee is behind",
       .rules = {{"needs --sweep", [&o] { return o.sweep.has_value(); }}}},
  };
}

Rows WorkloadRows(LoadOptions& o) {
  WorkloadOptions& w = o.workload;
  return {
      {"-w,--workload", Choice(w.kind, kWorkloadNames), "what the requests are like"},
      {.names = "--prompt-tokens",
       .value = Tokens(w.prompt_tokens, 1),
       .help = "of a prompt, N or LOW-HIGH",
       .excludes = {"--dataset"}},
      {"--max-tokens", Tokens(w.max_tokens, 0), "of an answer, N or LOW-HIGH; 0: unsaid"},
      {"--ignore-eos", Flag(w.ignore_eos), "answers go on to --max-tokens"},
      {.names = "--dataset",
       .value = Text(o.dataset_file),
       .help = "prompts from a JSONL file of texts or messages",
       .rules = {NeedsOtherWorkload(o, "needs a --workload that does not make its own prompts")}},
      {"--seed", Integer(w.seed, 0, UINT64_MAX), "of arrivals and prompts"},
      {.names = "--share",
       .value = Real(w.share, 0, 1),
       .help = "of requests that are long, leave, read slowly or are malformed",
       .rules = {{"needs a mixed --workload",
                  [&w] { return w.kind != kChat && w.kind != kMultiTurn; }}}},
      {.names = "--long-prompt-tokens",
       .value = Tokens(w.long_prompt_tokens, 1),
       .help = "with long-beside-short: of a long prompt",
       .rules = {{"needs --workload long-beside-short",
                  [&w] { return w.kind == kLongBesideShort; }}}},
      {.names = "--read-pause",
       .value = Seconds(w.read_pause_s, 0.001),
       .help = "with slow-readers: between two reads",
       .rules = {{"needs --workload slow-readers", [&w] { return w.kind == kSlowReaders; }}}},
      {.names = "--turns",
       .value = Integer(w.turns, 1, 10000),
       .help = "with multi-turn: of a conversation",
       .rules = {NeedsMultiTurn(o)}},
      {.names = "--shared-prefix-tokens",
       .value = Integer(w.shared_prefix_tokens, 0, 10000000),
       .help = "with multi-turn: of the system prompt that all share",
       .rules = {NeedsMultiTurn(o)}},
      {.names = "--think-time",
       .value = Seconds(w.think_s, 0),
       .help = "with multi-turn: mean pause between turns",
       .rules = {NeedsMultiTurn(o)}},
  };
}

Rows ReportRows(LoadOptions& o) {
  return {
      {"--slo", Objectives(o.slo),
       "exit status 1 if missed: "
       "ttft:p95<1s,itl:p99<100ms,tpot:mean<50ms,errors<1%,goodput>2"},
      {"--goodput", Goodput(o.good),
       "a good request: ttft<1s,tpot<50ms,itl<200ms (its largest gap),e2e<10s", "the SLO's limits"},
      {"--pid", Integer(o.pid, 1, INT32_MAX), "a server on this machine whose memory is watched"},
      {.names = "--rss-slope-max",
       .value = Bytes(o.rss_slope_max),
       .help = "with --pid: exit status 1 if RSS + swap grow by more in an hour, as 1MiB",
       .rules = {NeedsPid(o)}},
      {.names = "--soak",
       .value = Flag(o.soak),
       .help = "a long run: watches --pid, judges the growth of its memory",
       .rules = {NeedsPid(o)}},
      {"--json", Flag(o.json), "one JSON object on stdout"},
      {"--report", Text(o.report_file), "an HTML page with plots"},
      {"--raw", Text(o.raw_file), "JSONL of every request with the times of its chunks"},
  };
}

}  // namespace

std::string LoadOption::name() const {
  const std::string_view all = names;
  return std::string(all.substr(all.find(',') + 1));  // without a comma npos + 1 is 0
}

std::string LoadOption::Described() const {
  const std::string_view unless = otherwise;
  const bool both = !value.shown.empty() && !unless.empty();
  const std::string none = StrCat(value.shown, both ? "; " : "", unless);
  return none.empty() ? help : StrCat(help, " [", none, "]");
}

std::vector<LoadOption> OptionsOf(LoadOptions& options) {
  const std::pair<const char*, Rows> groups[] = {{"The load", LoadRows(options)},
                                                 {"Requests", WorkloadRows(options)},
                                                 {"The server", ServerRows(options)},
                                                 {"Goals and reports", ReportRows(options)}};
  Rows table;
  for (const auto& [group, rows] : groups) {
    for (LoadOption row : rows) {
      row.group = group;
      table.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace thermocline::loadtest
