#include "server/metrics/metrics_page.h"

#include "engine/base/strings.h"
#include "server/metrics/table.h"

namespace thermocline::server {
namespace {

constexpr const char* kHead = R"(# Metrics

`GET /metrics` is Prometheus' text format. `thermoclined --metrics-doc` prints this page from the table that the metrics
are registered from (`server/metrics/table.cc`); a test compares both, and a running daemon with them.

Every name begins with `metrics.prefix`; `metrics.prefix: "vllm:"` gives the names that dashboards for vLLM look for,
where the meaning is the same. Counters are read with `rate()`; a scrape changes nothing, so that any number of servers may
scrape. What the engine counts is copied when it is scraped, under no lock that a step of the model is made under.

Labels have few values: `api` is a route's template, a gRPC method or `unknown`, `code` an HTTP status (gRPC's is mapped),
`layer` a layer of the model, `position` and `k` end at the longest draft, 20; `rail`, `zone` and `unit` are sensors, at most
64 of each. The one model's name is in `model_info`, not on every series:
`... * on (instance) group_left (model) thermocline_model_info`.

Borders of the histograms are set by `metrics.buckets_*`, lists of ascending numbers; those of `engine_step_seconds` and
`engine_batch_size` are fixed, because the engine's thread counts by them, without a lock.

| appears | when |
|---|---|
| always | from the start |
| used | its labels' values have come up |
| loaded | the model is loaded |
| predicted | a layer decodes with a predictor (`sign`, `lowrank`), or did so before |
| controlled | a controller moves its threshold (`engine.controller_recall`) |
| flash | memory does not hold all |
| hot | there is a hot tier |
| experts | the model is a mixture of experts |
| drafts | speculation was not turned off |
| sensors | the machine has such sensors, and they can be read |
)";

struct Query {
  const char* title;
  const char* promql;
  const char* note;
};
constexpr Query kQueries[] = {
    {"Acceptance rate of drafted tokens",
     "sum(rate(thermocline_spec_decode_num_accepted_tokens_total[5m]))\n"
     "  / sum(rate(thermocline_spec_decode_num_draft_tokens_total[5m]))",
     ""},
    {"Mean accepted length: tokens that a verification gives, the target's own included",
     "1 + sum(rate(thermocline_spec_decode_num_accepted_tokens_total[5m]))\n"
     "  / sum(rate(thermocline_spec_decode_num_drafts_total[5m]))",
     ""},
    {"Hit ratio of the prefix cache",
     "sum(rate(thermocline_prefix_cache_hits_total[5m])) / "
     "sum(rate(thermocline_prefix_cache_queries_total[5m]))",
     ""},
    {"Hit ratio of the neuron cache",
     "sum(rate(thermocline_flash_hit_neurons_total[5m])) / "
     "sum(rate(thermocline_flash_needed_neurons_total[5m]))",
     "Only where memory does not hold all."},
    {"Precision of a layer's predictor",
     "sum by (layer) (rate(thermocline_predictor_neurons_total{outcome=\"tp\"}[5m]))\n"
     "  / sum by (layer) (rate(thermocline_predictor_neurons_total{outcome=~\"tp|fp\"}[5m]))",
     "Of the neurons predicted to be active, those that were: the positive class is ACTIVE. "
     "Without "
     "`rate(...[5m])` since the start."},
    {"Recall of a layer's predictor",
     "sum by (layer) (rate(thermocline_predictor_neurons_total{outcome=\"tp\"}[5m]))\n"
     "  / sum by (layer) (rate(thermocline_predictor_neurons_total{outcome=~\"tp|fn\"}[5m]))",
     "Of the active neurons, those that were computed."},
    {"Sparsity of a layer: neurons that are not active",
     "1 - sum by (layer) (rate(thermocline_predictor_neurons_total{outcome=~\"tp|fn\"}[5m]))\n"
     "  / sum by (layer) (rate(thermocline_predictor_neurons_total[5m]))",
     ""},
    {"Share of a layer's bytes that were not read",
     "1 - sum by (layer) (rate(thermocline_ffn_bytes_read_total[5m]))\n"
     "  / sum by (layer) (rate(thermocline_ffn_dense_bytes_total[5m]))",
     "Below 0 where a predictor costs more than it saves."},
    {"Feed-forward bytes of a token, by tier",
     "sum by (tier) (rate(thermocline_ffn_tier_bytes_total[5m]))\n"
     "  / on () group_left () sum(rate(thermocline_ffn_tokens_total{layer=\"0\"}[5m]))",
     ""},
    {"Time to first token, 95th percentile",
     "histogram_quantile(0.95, sum by (le) "
     "(rate(thermocline_time_to_first_token_seconds_bucket[5m])))",
     ""},
    {"Tokens per second", "sum(rate(thermocline_generation_tokens_total[5m]))", ""},
    {"Mean time of a step, by phase",
     "sum by (phase) (rate(thermocline_engine_step_seconds_sum[5m]))\n"
     "  / sum by (phase) (rate(thermocline_engine_step_seconds_count[5m]))",
     ""},
    {"Time of a step, 99th percentile, by phase",
     "histogram_quantile(0.99, sum by (phase, le) "
     "(rate(thermocline_engine_step_seconds_bucket[5m])))",
     ""},
    {"Mean tokens of a step",
     "sum(rate(thermocline_engine_batch_size_sum[5m])) / "
     "sum(rate(thermocline_engine_batch_size_count[5m]))",
     ""},
    {"Energy of a token, by rail, in joules",
     "sum by (rail) (rate(thermocline_energy_joules_total[5m]))\n"
     "  / on () group_left () sum(rate(thermocline_generation_tokens_total[5m]))",
     "Only where there are sensors, and only of tokens while tokens are made. Rails overlap: one "
     "may be a part of another."},
    {"Goodput: requests per second with a first token within 1 s and 100 ms a token, at least",
     "clamp_min(sum(rate(thermocline_time_to_first_token_seconds_bucket{le=\"1\"}[5m]))\n"
     "  + sum(rate(thermocline_request_time_per_output_token_seconds_bucket{le=\"0.1\"}[5m]))\n"
     "  - sum(rate(thermocline_time_to_first_token_seconds_count[5m])), 0)",
     "Two histograms do not say which requests meet both limits; this many do whichever they are. "
     "The limits must be borders of the histograms."},
    {"The engine hangs: requests run and no step is made",
     "thermocline_num_requests_running - thermocline_num_requests_paused > 0\n"
     "  and rate(thermocline_engine_heartbeats_total[1m]) == 0",
     "An alert; empty while all is well."},
};

constexpr const char* kTail = R"(
## The machine's sensors

They are found once, at the start, and read once a second by a thread of their own; a scrape shows the last reading. A
sensor that cannot be read has no series meanwhile, but for the energy it gave before; and where there are none, as in most virtual machines and containers,
there are no such metrics at all.

| metric | from, below `/sys` | name |
|---|---|---|
| `power_watts` | `class/hwmon/*/power*_input`, else `power*_average` | chip/label |
| `power_watts` | ina3221 (Jetson): `in[1-3]_input` times `curr[1-3]_input` of `class/hwmon/*` | the rail: `VDD_IN` is the whole module |
| `power_watts`, `energy_joules_total` | `class/powercap/intel-rapl:*/energy_uj` (Intel, AMD) | rapl/package-0, rapl/package-0/core |
| `temperature_celsius` | `class/thermal/thermal_zone*/temp` | its type: `cpu-thermal` |
| `temperature_celsius` | `class/hwmon/*/temp*_input`, without those that are thermal zones | chip/label: `coretemp/Core 0` |
| `clock_hertz` | `devices/system/cpu/cpufreq/policy*/scaling_cur_freq` | cpu and the first processor's number |
| `clock_hertz` | `class/devfreq/*/cur_freq` of a Jetson's or Mali GPU | gpu |

A second sensor of the same name is `NAME#2`. Where a rail tells its power only, energy is added up from the readings
(trapezoids of a second). Counters of energy that begin anew are followed; what passes while a sensor cannot be read is
not counted. `energy_uj` is readable by root alone on most systems, because it tells what other programs compute: see
[operations.md](operations.md#systemd). NVIDIA's cards in PCs and servers have no sensors in `/sys`; NVIDIA's own
exporter (DCGM) shows their power, temperature and free memory. How much memory a device has free is no metric here: to
ask the driver is a call into the context that the engine works with, and a scrape must not delay a token.

## Predictors: the daemon and `thermocline eval`

Both audit by the same code. An audit computes the active neurons of one layer for one token, without the predictor, and
compares them with the predicted neurons.

They differ in the tokens that they audit. `eval --predictor` audits every token of the text, one step a token. The daemon
audits decoded tokens, not prompts: one of `engine.audit_interval`, and at most one of as many as the model has layers,
because it audits one layer after each further step.

So the daemon's figures are a sample of eval's under three conditions. Eval gets the text that the daemon generated (with
the prompt in front, whose own counts are then subtracted). Mode and threshold are the same
(`engine.controller_recall: 0`). Enough tokens are audited: of a step that verifies drafts the first token alone may be. One
difference remains: the daemon computes prompts densely and eval does not.

The sample consists of tokens, not neurons, because a token's neurons are active and missed together. With n audited tokens
of N, the ratio's error is at most that of n tokens drawn at random: s / sqrt(n) with s the standard deviation of the ratio
between tokens. A token's share lies in [0, 1], so s <= sqrt(p (1 - p)) for mean p: the binomial bound with n instead of the
number of neurons.
)";

const char* TypeName(MetricType type) {
  return type == MetricType::kCounter ? "counter"
         : type == MetricType::kGauge ? "gauge"
                                      : "histogram";
}

const char* WhenName(MetricWhen when) {
  switch (when) {
    case MetricWhen::kAlways:
      return "always";
    case MetricWhen::kUsed:
      return "used";
    case MetricWhen::kLoaded:
      return "loaded";
    case MetricWhen::kPredicted:
      return "predicted";
    case MetricWhen::kControlled:
      return "controlled";
    case MetricWhen::kInputs:
      return "inputs";
    case MetricWhen::kFlash:
      return "flash";
    case MetricWhen::kHot:
      return "hot";
    case MetricWhen::kExperts:
      return "experts";
    case MetricWhen::kDrafts:
      return "drafts";
    case MetricWhen::kSensors:
      break;
  }
  return "sensors";
}

// `text` where a bar would end the cell.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

std::string MetricsPage() {
  std::string out = kHead;
  std::string_view part;
  for (const MetricInfo& info : MetricTable()) {
    if (part != info.part) {
      part = info.part;
      out +=
          StrCat("\n## ", part,
                 "\n\n| metric | type | labels | unit | appears | meaning |\n|---|---|---|---|---"
                 "|---|\n");
    }
    out += StrCat("| `", FullMetricName(info, "thermocline_"), "` | ", TypeName(info.type), " | ",
                  info.labels, " | ", info.unit, " | ", WhenName(info.when), " | ", Cell(info.help),
                  " |\n");
  }
  out += "\n## Queries\n";
  for (const Query& query : kQueries) {
    out += StrCat("\n", query.title, ":\n\n```promql\n", query.promql, "\n```\n");
    if (*query.note != '\0') out += StrCat("\n", query.note, "\n");
  }
  return out + kTail;
}

}  // namespace thermocline::server
