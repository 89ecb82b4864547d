#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

#include "server/metrics/catch_up.h"
#include "server/metrics/ffn_metrics.h"
#include "server/metrics/flash_metrics.h"
#include "server/metrics/hot_metrics.h"
#include "server/metrics/spec_metrics.h"
#include "server/openai/chat_response.h"

namespace thermocline::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using Buckets = prometheus::Histogram::BucketBoundaries;

// Seconds. A small model streams a token a millisecond, so the ladders begin there.
const Buckets kTimeToFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75,
                                   1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 300};
const Buckets kInterToken = {.001, .002, .003, .005, .0075, .01, .015, .02, .03, .04, .05,
                             .075, .1,   .15,  .2,   .3,    .5,  .75,  1,   2.5, 5,   10};
const Buckets kEndToEnd = {.05, .1, .2, .3, .5, .8, 1,   1.5, 2,   2.5, 5,   10,
                           15,  20, 30, 40, 50, 60, 120, 240, 480, 960, 1920};
const Buckets kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                         500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

}  // namespace

const char* ServiceStateName(ServiceState state) {
  switch (state) {
    case ServiceState::kLoading:
      return "loading";
    case ServiceState::kReady:
      return "ready";
    case ServiceState::kDraining:
      return "draining";
    case ServiceState::kFailed:
      return "failed";
  }
  return "";
}

struct Metrics::Impl {
  explicit Impl(const std::string& p)
      : prefix(p),
        requests(BuildCounter()
                     .Name(p + "requests_total")
                     .Help("HTTP requests by route and status")
                     .Register(registry)),
        success(BuildCounter()
                    .Name(p + "request_success_total")
                    .Help("Generations that ended by themselves, by reason")
                    .Register(registry)),
        rejected(BuildCounter()
                     .Name(p + "requests_rejected_total")
                     .Help("Requests refused before they were queued, by reason")
                     .Register(registry)),
        cancelled(BuildCounter()
                      .Name(p + "requests_cancelled_total")
                      .Help("Generations whose client left, by phase")
                      .Register(registry)),
        failed(BuildCounter()
                   .Name(p + "requests_failed_total")
                   .Help("Generations ended by an error: device (it did not answer or failed), "
                         "data (not the bytes that were written), deadline, other")
                   .Register(registry)),
        prompt_tokens(BuildCounter()
                          .Name(p + "prompt_tokens_total")
                          .Help("Prompt tokens, by where they came from")
                          .Register(registry)),
        generation_tokens(BuildCounter()
                              .Name(p + "generation_tokens_total")
                              .Help("Tokens generated")
                              .Register(registry)
                              .Add({})),
        first_token(BuildHistogram()
                        .Name(p + "time_to_first_token_seconds")
                        .Help("From the request's arrival to its first token")
                        .Register(registry)
                        .Add({}, kTimeToFirstToken)),
        inter_token(BuildHistogram()
                        .Name(p + "inter_token_latency_seconds")
                        .Help("Between two tokens of one stream")
                        .Register(registry)
                        .Add({}, kInterToken)),
        end_to_end(BuildHistogram()
                       .Name(p + "e2e_request_latency_seconds")
                       .Help("From the request's arrival to its last token")
                       .Register(registry)
                       .Add({}, kEndToEnd)),
        queue_time(BuildHistogram()
                       .Name(p + "request_queue_time_seconds")
                       .Help("Waiting in the queue")
                       .Register(registry)
                       .Add({}, kTimeToFirstToken)),
        prefill_time(BuildHistogram()
                         .Name(p + "request_prefill_time_seconds")
                         .Help("Reading the prompt")
                         .Register(registry)
                         .Add({}, kTimeToFirstToken)),
        decode_time(BuildHistogram()
                        .Name(p + "request_decode_time_seconds")
                        .Help("Generating after the first token")
                        .Register(registry)
                        .Add({}, kEndToEnd)),
        request_prompt_tokens(BuildHistogram()
                                  .Name(p + "request_prompt_tokens")
                                  .Help("Prompt tokens of a request")
                                  .Register(registry)
                                  .Add({}, kTokens)),
        request_generation_tokens(BuildHistogram()
                                      .Name(p + "request_generation_tokens")
                                      .Help("Tokens generated for a request")
                                      .Register(registry)
                                      .Add({}, kTokens)),
        state(BuildGauge()
                  .Name(p + "state")
                  .Help("1 for the state the daemon is in")
                  .Register(registry)),
        running(BuildGauge()
                    .Name(p + "num_requests_running")
                    .Help("Generations in progress")
                    .Register(registry)
                    .Add({})),
        waiting(BuildGauge()
                    .Name(p + "num_requests_waiting")
                    .Help("Requests in the queue")
                    .Register(registry)
                    .Add({})),
        capacity(BuildGauge()
                     .Name(p + "queue_capacity")
                     .Help("Requests the queue can hold")
                     .Register(registry)
                     .Add({})),
        load_seconds(BuildGauge()
                         .Name(p + "model_load_seconds")
                         .Help("Time the model took to load")
                         .Register(registry)
                         .Add({})),
        memory(
            BuildGauge().Name(p + "memory_bytes").Help("Memory held, by kind").Register(registry)),
        bytes_per_token(BuildGauge()
                            .Name(p + "bytes_per_token")
                            .Help("Weight bytes that a decoded token reads, on average")
                            .Register(registry)
                            .Add({})),
        prefix_lookups(BuildCounter()
                           .Name(p + "prefix_cache_lookups_total")
                           .Help("Prompts looked up in the prefix cache, by what was found")
                           .Register(registry)),
        prefix_queries(BuildCounter()
                           .Name(p + "prefix_cache_queries_total")
                           .Help("Prompt tokens looked up in the prefix cache")
                           .Register(registry)
                           .Add({})),
        prefix_hits(BuildCounter()
                        .Name(p + "prefix_cache_hits_total")
                        .Help("Prompt tokens found in the prefix cache")
                        .Register(registry)
                        .Add({})),
        prefix_missed(
            BuildCounter()
                .Name(p + "prefix_cache_missed_tokens_total")
                .Help("Prompt tokens not found in the prefix cache, by reason: new behind "
                      "their prefix, or evicted")
                .Register(registry)),
        prefix_evictions(BuildCounter()
                             .Name(p + "prefix_cache_evicted_blocks_total")
                             .Help("Blocks of 64 tokens the prefix cache gave up for newer ones")
                             .Register(registry)
                             .Add({})),
        model_info(BuildGauge()
                       .Name(p + "model_info")
                       .Help("The model served; always 1")
                       .Register(registry)),
        ffn(registry, p),
        flash(registry, p),
        hot(registry, p),
        spec(registry, p) {
    BuildGauge()
        .Name(p + "build_info")
        .Help("The program; always 1")
        .Register(registry)
        .Add({{"version", "0.1.0"}})
        .Set(1);
  }

  prometheus::Registry registry;
  const std::string prefix;
  prometheus::Family<prometheus::Counter>&requests, &success, &rejected, &cancelled, &failed,
      &prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Histogram &first_token, &inter_token, &end_to_end, &queue_time, &prefill_time,
      &decode_time, &request_prompt_tokens, &request_generation_tokens;
  prometheus::Family<prometheus::Gauge>& state;
  prometheus::Gauge &running, &waiting, &capacity, &load_seconds;
  prometheus::Family<prometheus::Gauge>& memory;
  prometheus::Gauge& bytes_per_token;
  prometheus::Family<prometheus::Counter>& prefix_lookups;
  prometheus::Counter &prefix_queries, &prefix_hits;
  prometheus::Family<prometheus::Counter>& prefix_missed;
  prometheus::Counter& prefix_evictions;
  prometheus::Family<prometheus::Gauge>& model_info;
  FfnMetrics ffn;
  FlashMetrics flash;
  HotMetrics hot;
  SpecMetrics spec;
  std::mutex expose_mutex;  // of what a scrape brings up to date
};

Metrics::Metrics(const std::string& prefix) : impl_(std::make_unique<Impl>(prefix)) {}
Metrics::~Metrics() = default;

void Metrics::RequestEnded(const std::string& route, int http_status) {
  impl_->requests.Add({{"api", route}, {"code", StrCat(http_status)}}).Increment();
}
void Metrics::RequestRejected(const std::string& reason) {
  impl_->rejected.Add({{"reason", reason}}).Increment();
}
void Metrics::RequestCancelled(const std::string& phase) {
  impl_->cancelled.Add({{"phase", phase}, {"cause", "disconnect"}}).Increment();
}

void Metrics::RequestFailed(StatusCode code) {
  const char* reason = code == StatusCode::kUnavailable        ? "device"
                       : code == StatusCode::kDataLoss         ? "data"
                       : code == StatusCode::kDeadlineExceeded ? "deadline"
                                                               : "other";
  impl_->failed.Add({{"reason", reason}}).Increment();
}

void Metrics::RequestFinished(FinishReason reason, const Usage& usage, double total_s) {
  impl_->prompt_tokens.Add({{"source", "computed"}})
      .Increment(usage.prompt_tokens - usage.cached_tokens);
  impl_->prompt_tokens.Add({{"source", "cache"}}).Increment(usage.cached_tokens);
  impl_->generation_tokens.Increment(usage.completion_tokens);
  impl_->queue_time.Observe(usage.queue_s);
  if (reason != FinishReason::kStop && reason != FinishReason::kLength) return;
  impl_->success.Add({{"finished_reason", openai::FinishReasonName(reason)}}).Increment();
  impl_->end_to_end.Observe(total_s);
  impl_->prefill_time.Observe(usage.prefill_s);
  impl_->decode_time.Observe(usage.decode_s);
  impl_->request_prompt_tokens.Observe(usage.prompt_tokens);
  impl_->request_generation_tokens.Observe(usage.completion_tokens);
}

void Metrics::FirstToken(double seconds) { impl_->first_token.Observe(seconds); }

void Metrics::InterToken(double seconds) { impl_->inter_token.Observe(seconds); }

void Metrics::ExposePrefixCache(const EngineStats::PrefixCache& c) {
  CatchUp(impl_->prefix_lookups.Add({{"result", "hit"}}), c.hits);
  CatchUp(impl_->prefix_lookups.Add({{"result", "partial"}}), c.partial);
  CatchUp(impl_->prefix_lookups.Add({{"result", "miss"}}), c.misses);
  CatchUp(impl_->prefix_queries, c.hit_tokens + c.new_tokens + c.evicted_tokens);
  CatchUp(impl_->prefix_hits, c.hit_tokens);
  CatchUp(impl_->prefix_missed.Add({{"reason", "new"}}), c.new_tokens);
  CatchUp(impl_->prefix_missed.Add({{"reason", "evicted"}}), c.evicted_tokens);
  CatchUp(impl_->prefix_evictions, c.evictions);
  impl_->memory.Add({{"kind", "prefix_cache"}}).Set(static_cast<double>(c.bytes));
}

std::string Metrics::Expose(ServiceState state, const EngineStats* stats,
                            const std::string& model_name) {
  const std::lock_guard lock(impl_->expose_mutex);
  for (const ServiceState each : {ServiceState::kLoading, ServiceState::kReady,
                                  ServiceState::kDraining, ServiceState::kFailed}) {
    impl_->state.Add({{"state", ServiceStateName(each)}}).Set(each == state ? 1 : 0);
  }
  if (stats != nullptr) {
    impl_->running.Set(stats->running);
    impl_->waiting.Set(stats->waiting);
    impl_->capacity.Set(stats->queue_capacity);
    impl_->load_seconds.Set(stats->load_s);
    impl_->memory.Add({{"kind", "weights"}}).Set(static_cast<double>(stats->weight_bytes));
    impl_->memory.Add({{"kind", "kv"}}).Set(static_cast<double>(stats->kv_bytes));
    ExposePrefixCache(stats->prefix_cache);
    impl_->memory.Add({{"kind", "predictors"}}).Set(static_cast<double>(stats->predictor_bytes));
    impl_->ffn.Expose(*stats);
    impl_->flash.Expose(*stats);
    impl_->hot.Expose(*stats);
    impl_->spec.Expose(*stats);
    if (stats->flash.used && !stats->flash.layers)
      impl_->memory.Add({{"kind", "flash_cache"}})
          .Set(static_cast<double>(stats->flash.cache_bytes));
    impl_->bytes_per_token.Set(static_cast<double>(stats->bytes_per_token) -
                               SavedBytesPerToken(stats->ffn));
    impl_->model_info
        .Add({{"model", model_name},
              {"family", stats->architecture},
              {"n_ctx", StrCat(stats->context_length)},
              {"n_params", StrCat(stats->num_parameters)},
              {"cpu_isa", stats->cpu_isa}})
        .Set(1);
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace thermocline::server
