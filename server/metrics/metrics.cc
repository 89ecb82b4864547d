#include "server/metrics/metrics.h"

#include "engine/base/mutex.h"
#include "server/metrics/build_info.h"
#include "server/metrics/engine_metrics.h"
#include "server/metrics/expert_metrics.h"
#include "server/metrics/ffn_metrics.h"
#include "server/metrics/flash_metrics.h"
#include "server/metrics/hot_metrics.h"
#include "server/metrics/metric_set.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/sensor_metrics.h"
#include "server/metrics/spec_metrics.h"

namespace thermocline::server {

const char* ServiceStateName(ServiceState state) {
  switch (state) {
    case ServiceState::kLoading:
      return "loading";
    case ServiceState::kReady:
      return "ready";
    case ServiceState::kSleeping:
      return "sleeping";
    case ServiceState::kDraining:
      return "draining";
    case ServiceState::kFailed:
      return "failed";
  }
  return "";
}

struct Metrics::Impl {
  Impl(const std::string& prefix, const MetricBuckets& buckets,
       std::unique_ptr<const SensorPoller> poller)
      : set(prefix, buckets), sensors(std::move(poller)) {
    set.SetInfo("build_info", BuildInfo());
  }

  MetricSet set;
  // Histograms of a generation and its tokens, looked up once.
  prometheus::Histogram& first_token = set.HistogramOf("time_to_first_token_seconds");
  prometheus::Histogram& inter_token = set.HistogramOf("inter_token_latency_seconds");
  prometheus::Histogram& per_token = set.HistogramOf("request_time_per_output_token_seconds");
  prometheus::Histogram& end_to_end = set.HistogramOf("e2e_request_latency_seconds");
  prometheus::Histogram& queue_time = set.HistogramOf("request_queue_time_seconds");
  prometheus::Histogram& prefill_time = set.HistogramOf("request_prefill_time_seconds");
  prometheus::Histogram& decode_time = set.HistogramOf("request_decode_time_seconds");
  prometheus::Histogram& prompt_tokens = set.HistogramOf("request_prompt_tokens");
  prometheus::Histogram& generation_tokens = set.HistogramOf("request_generation_tokens");
  prometheus::Histogram& reasoning_tokens = set.HistogramOf("request_reasoning_tokens");
  prometheus::Histogram& tokenize = set.HistogramOf("tokenize_seconds");
  prometheus::Histogram& cancel_latency = set.HistogramOf("cancel_latency_seconds");

  const std::unique_ptr<const SensorPoller> sensors;  // or null
  base::Mutex expose_mutex;                           // guards the values that a scrape updates
};

Metrics::Metrics(const std::string& prefix, const MetricBuckets& buckets,
                 std::unique_ptr<const SensorPoller> sensors)
    : impl_(std::make_unique<Impl>(prefix, buckets, std::move(sensors))) {}
Metrics::~Metrics() = default;

void Metrics::RequestEnded(const std::string& route, int http_status) {
  impl_->set.Count("requests_total", {{"api", route}, {"code", StrCat(http_status)}});
}
void Metrics::AccessLoosened() { impl_->set.Count("access_loosened_total", {}); }

void Metrics::FieldIgnored(const std::string& route, const std::string& field) {
  impl_->set.Count("request_fields_ignored_total", {{"api", route}, {"field", field}});
}
void Metrics::TokensReplayed(int tokens) { impl_->set.Count("replayed_tokens_total", {}, tokens); }
void Metrics::Reasoned(int tokens, bool cut) {
  impl_->reasoning_tokens.Observe(tokens);
  if (cut) impl_->set.Count("reasoning_cut_total", {});
}

void Metrics::PrefixBroken(const std::string& where) {
  impl_->set.Count("prefix_breaks_total", {{"where", where}});
}
void Metrics::ToolCalls(const std::string& form, int calls) {
  impl_->set.Count("tool_calls_total", {{"form", form}}, calls);
}
void Metrics::ToolCallRejected(const std::string& rule) {
  impl_->set.Count("tool_call_rejected_total", {{"rule", rule}});
}
void Metrics::RequestRejected(const std::string& reason) {
  impl_->set.Count("requests_rejected_total", {{"reason", reason}});
}
void Metrics::RequestCancelled(Phase phase, CancelCause cause, double seconds) {
  impl_->set.Count("requests_cancelled_total",
                   {{"phase", PhaseName(phase)}, {"cause", CancelCauseName(cause)}});
  impl_->cancel_latency.Observe(seconds);
}

void Metrics::RequestFailed(const std::string& reason) {
  impl_->set.Count("requests_failed_total", {{"reason", reason}});
}

void Metrics::RequestFinished(FinishReason reason, const Usage& usage, double total_s) {
  impl_->set.Count("prompt_tokens_total", {{"source", "computed"}}, usage.prefill_tokens);
  impl_->set.Count("prompt_tokens_total", {{"source", "cache"}}, usage.cached_tokens);
  impl_->queue_time.Observe(usage.queue_s);
  if (reason == FinishReason::kCancelled || reason == FinishReason::kError) return;
  impl_->set.Count("request_success_total", {{"finished_reason", FinishReasonName(reason)}});
  impl_->end_to_end.Observe(total_s);
  impl_->prefill_time.Observe(usage.prefill_s);
  impl_->decode_time.Observe(usage.decode_s);
  if (usage.completion_tokens > 1)
    impl_->per_token.Observe(usage.decode_s / (usage.completion_tokens - 1));
  impl_->prompt_tokens.Observe(usage.prompt_tokens);
  impl_->generation_tokens.Observe(usage.completion_tokens);
}

void Metrics::FirstToken(double seconds) {
  impl_->first_token.Observe(seconds);
  impl_->set.Count("generation_tokens_total");
}
void Metrics::InterToken(double seconds) {
  impl_->inter_token.Observe(seconds);
  impl_->set.Count("generation_tokens_total");
}
void Metrics::Tokenized(double seconds) { impl_->tokenize.Observe(seconds); }

std::optional<double> Metrics::Joules(std::chrono::steady_clock::time_point begin,
                                      std::chrono::steady_clock::time_point end) const {
  return impl_->sensors != nullptr ? impl_->sensors->Joules(begin, end) : std::nullopt;
}

void Metrics::ForgetEngine() { impl_->set.ForgetEngine(); }

std::string Metrics::Expose(ServiceState state, const EngineStats* stats,
                            const std::string& model_name, MetricReader reader) {
  return MetricText(Collect(state, stats, model_name, reader));
}

std::vector<prometheus::MetricFamily> Metrics::Collect(ServiceState state, const EngineStats* stats,
                                                       const std::string& model_name,
                                                       MetricReader reader) {
  const base::MutexLock lock(impl_->expose_mutex);
  MetricSet& set = impl_->set;
  for (const ServiceState each :
       {ServiceState::kLoading, ServiceState::kReady, ServiceState::kSleeping,
        ServiceState::kDraining, ServiceState::kFailed})
    set.Set("state", each == state ? 1 : 0, {{"state", ServiceStateName(each)}});
  ExposeProcess(set);
  if (impl_->sensors != nullptr) ExposeSensors(impl_->sensors->Latest(), set);
  if (stats != nullptr) {
    set.SetInfo("model_info", {{"model", model_name},
                               {"family", stats->architecture},
                               {"format", stats->model_format},
                               {"kv_type", stats->kv_type},
                               {"n_ctx", StrCat(stats->context_length)},
                               {"n_params", StrCat(stats->num_parameters)},
                               {"cpu_isa", stats->cpu_isa}});
    ExposeEngine(*stats, set);
    ExposeFfn(*stats, set);
    ExposeFlash(*stats, set);
    if (stats->experts.experts > 0) ExposeExperts(*stats, set);
    ExposeHot(*stats, set);
    ExposeSpec(*stats, set);
  }
  return set.Collect(reader);
}

std::string ExposeTogether(std::vector<MetricsOfModel> models) {
  if (models.size() == 1) return MetricText(models.front().second);
  std::vector<prometheus::MetricFamily> all;
  for (auto& [name, families] : models) {
    const bool first = all.empty();
    for (prometheus::MetricFamily& family : families) {
      const bool of_process = family.name.starts_with("process_");
      if (of_process && !first) continue;
      if (!of_process)
        for (prometheus::ClientMetric& series : family.metric)
          // Descriptions of a model name it already.
          if (std::none_of(series.label.begin(), series.label.end(),
                           [](const auto& label) { return label.name == "model"; }))
            series.label.push_back({"model", name});
      const auto same = std::find_if(all.begin(), all.end(),
                                     [&](const auto& other) { return other.name == family.name; });
      if (same == all.end()) {
        all.push_back(std::move(family));
      } else {
        std::move(family.metric.begin(), family.metric.end(), std::back_inserter(same->metric));
      }
    }
  }
  return MetricText(all);
}

}  // namespace thermocline::server
