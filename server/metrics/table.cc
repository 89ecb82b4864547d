#include "server/metrics/table.h"

namespace thermocline::server {
namespace {

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge,
                     kHistogram = MetricType::kHistogram;
using W = MetricWhen;

constexpr MetricInfo kOfRequests[] = {
    {"build_info", kGauge, "version, commit, compiler, backend, arch", "1", "Daemon", W::kAlways,
     "The program; always 1"},
    {"state", kGauge, "state", "0 or 1", "Daemon", W::kAlways,
     "1 for the state the model is in: loading, ready, sleeping, draining or failed"},
    {"model_info", kGauge, "model, family, format, kv_type, n_ctx, n_params, cpu_isa", "1",
     "Daemon", W::kLoaded, "The model served; always 1"},
    {"model_load_seconds", kGauge, "", "seconds", "Daemon", W::kLoaded,
     "Time the model took to load"},
    {"memory_bytes", kGauge, "kind, device", "bytes", "Daemon", W::kLoaded,
     "Memory held, by kind: weights, kv (reserved), predictors, prefix_cache, flash_cache; and by "
     "device: cpu, or the GPU of device_info, with the weights and predictors that it has"},
    {"memory_budget_bytes", kGauge, "", "bytes", "Daemon", W::kLoaded,
     "What the whole process may take"},
    {"memory_planned_bytes", kGauge, "", "bytes", "Daemon", W::kLoaded,
     "What it will take at most, as planned while loading"},

    {"log_lines_dropped_total", kCounter, "", "lines", "Daemon", W::kAlways,
     "Lines of the log that nobody read in time or that could not be written"},
    {"access_loosened_total", kCounter, "", "reloads", "Daemon", W::kAlways,
     "Reloads of the configuration that let more clients in or gave them more rights"},
    {"requests_total", kCounter, "api, code", "requests", "Requests", W::kUsed,
     "Requests answered, by route (its template, never a raw path) and status"},
    {"request_success_total", kCounter, "finished_reason", "generations", "Requests", W::kUsed,
     "Generations that ended by themselves: stop or length"},
    {"tool_calls_total", kCounter, "form", "calls", "Requests", W::kUsed,
     "Calls of tools in answers, by the form in which the model wrote them: native (its "
     "template's), tolerated, json, fence, python, xml, foreign (docs/tools.md)"},
    {"tool_call_rejected_total", kCounter, "rule", "answers", "Requests", W::kUsed,
     "Answers with a text that looked like a call of a tool and was left as text, by the rule that "
     "it broke (docs/tools.md)"},
    {"request_fields_ignored_total", kCounter, "api, field", "fields", "Requests", W::kUsed,
     "Fields of requests that their route does not know and ignores, by route and name; \"other\" "
     "beyond 128 names, for names of other characters than letters, digits, _ . and -, and, where "
     "there are keys, to keys that are not marked admin",
     Ladder::kNone, "field"},
    {"requests_rejected_total", kCounter, "reason", "requests", "Requests", W::kUsed,
     "Requests refused before they were queued: queue_full, grammar_memory, request_memory (bodies "
     "of requests), prefill_budget (prompt tokens that wait), too_long, bad_request, auth, "
     "deadline, loading, draining; connections: HTTP "
     "connections above a limit, whose requests were not read"},
    {"requests_cancelled_total", kCounter, "phase, cause", "generations", "Requests", W::kUsed,
     "Generations that were cancelled, by how far they were and why: disconnect, deadline (of the "
     "request or the server's), api (by its id), shutdown, slow_reader, other_choice (another one "
     "of its request failed)"},
    {"requests_failed_total", kCounter, "reason", "generations", "Requests", W::kUsed,
     "Generations ended by an error: device (it did not answer or failed), data (not the bytes "
     "that were written), other"},
    {"num_requests_running", kGauge, "", "requests", "Requests", W::kLoaded,
     "Requests that are begun: one computes, the others wait for their turn"},
    {"num_requests_paused", kGauge, "", "requests", "Requests", W::kLoaded,
     "Of them, those that wait for their client to read"},
    {"num_requests_waiting", kGauge, "", "requests", "Requests", W::kLoaded,
     "Requests in the queue, those whose prompts are being tokenized included"},
    {"queue_capacity", kGauge, "", "requests", "Requests", W::kLoaded,
     "Requests the queue can hold"},
    {"queue_prefill_tokens", kGauge, "", "tokens", "Requests", W::kLoaded,
     "Prompt tokens of the requests in the queue"},
    {"queue_prefill_tokens_max", kGauge, "", "tokens", "Requests", W::kLoaded,
     "Prompt tokens that the queue can hold; 0 = any number"},
    {"prompt_tokens_total", kCounter, "source", "tokens", "Requests", W::kUsed,
     "Prompt tokens, by where their KV entries came from: computed or cache; each choice of a "
     "prompt counts them"},
    {"replayed_tokens_total", kCounter, "", "tokens", "Requests", W::kAlways,
     "Prompt tokens of earlier answers that are those which the model sampled, from the token "
     "memory; each choice's prompt counts once"},
    {"prefix_breaks_total", kCounter, "where", "prompts", "Requests", W::kUsed,
     "Conversations that differ from a cached prompt, by the part in which they begin to: system, "
     "tools, history, reasoning (the begin of an earlier answer), tail (the last message, where "
     "every new conversation does)"},
    {"generation_tokens_total", kCounter, "", "tokens", "Requests", W::kAlways, "Tokens generated"},
    {"request_prompt_tokens", kHistogram, "", "tokens", "Requests", W::kAlways,
     "Prompt tokens of a generation: each choice of a prompt is one", Ladder::kTokens},
    {"request_generation_tokens", kHistogram, "", "tokens", "Requests", W::kAlways,
     "Tokens of a generation", Ladder::kTokens},
    {"request_reasoning_tokens", kHistogram, "", "tokens", "Requests", W::kAlways,
     "Tokens of reasoning of an answer that has some", Ladder::kTokens},
    {"reasoning_cut_total", kCounter, "", "answers", "Requests", W::kAlways,
     "Answers whose reasoning reached its budget (docs/tools.md)"},

    {"time_to_first_token_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "From the request's arrival to its first token", Ladder::kFirstToken},
    {"inter_token_latency_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Between two tokens of one stream, when they were made", Ladder::kInterToken},
    {"request_time_per_output_token_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Time of a request's tokens after the first, by their number", Ladder::kInterToken},
    {"e2e_request_latency_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "From the request's arrival to its last token", Ladder::kRequest},
    {"request_queue_time_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Waiting in the queue", Ladder::kFirstToken},
    {"request_prefill_time_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Prefill: computing the prompt", Ladder::kFirstToken},
    {"request_decode_time_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Generating after the first token", Ladder::kRequest},
    {"tokenize_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "Making a prompt into tokens, its chat template included", Ladder::kTokenize},
    {"cancel_latency_seconds", kHistogram, "", "seconds", "Latency", W::kAlways,
     "From a cancellation until the engine let go of the request", Ladder::kInterToken},
};

}  // namespace

std::span<const MetricInfo> MetricTable() {
  static const std::vector<MetricInfo> kTable = [] {
    std::vector<MetricInfo> all(std::begin(kOfRequests), std::end(kOfRequests));
    const std::span<const MetricInfo> engine = EngineMetricTable();
    all.insert(all.end(), engine.begin(), engine.end());
    return all;
  }();
  return kTable;
}

std::string FullMetricName(const MetricInfo& info, const std::string& prefix) {
  const std::string_view name = info.name;
  return name.starts_with("process_") ? std::string(name) : prefix + info.name;
}

}  // namespace thermocline::server
