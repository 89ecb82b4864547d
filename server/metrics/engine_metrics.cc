#include "server/metrics/engine_metrics.h"

#include "engine/base/ratio.h"

namespace thermocline::server {
namespace {

void ExposeQueue(const EngineStats& s, MetricSet& set) {
  set.Set("num_requests_running", s.running);
  set.Set("num_requests_paused", s.paused);
  set.Set("num_requests_waiting", s.waiting);
  set.Set("queue_capacity", s.queue_capacity);
  set.Set("queue_prefill_tokens", s.queue_prefill_tokens);
  set.Set("queue_prefill_tokens_max", s.queue_prefill_tokens_max);
}

void ExposeGrammars(const EngineStats& s, MetricSet& set) {
  const GrammarStats& g = s.grammar;
  set.CatchUp("grammar_compiled_total", g.compiled, {{"result", "ok"}});
  set.CatchUp("grammar_compiled_total", g.refused, {{"result", "refused"}});
  set.CatchUp("grammar_compile_seconds_total", g.compile_s);
  set.CatchUp("grammar_cache_hits_total", g.cache_hits);
  set.Set("grammar_cache_entries", g.cache_entries);
  set.Set("grammar_cache_bytes", g.cache_bytes);
  set.Set("grammar_memory_bytes", g.held_bytes);
  set.CatchUp("grammar_masks_total", g.masks);
  set.CatchUp("grammar_mask_seconds_total", g.mask_s);
  set.CatchUp("grammar_forced_tokens_total", g.forced_tokens);
  set.CatchUp("grammar_forced_accepted_tokens_total", g.forced_accepted_tokens);
}

void ExposeSteps(const EngineStats& s, MetricSet& set) {
  const auto phase = [&](const char* name, const auto& steps) {
    set.CatchUp("engine_step_seconds", steps.counts, steps.sum, {{"phase", name}});
  };
  phase("prefill", s.steps.prefill);
  phase("decode", s.steps.decode);
  phase("verify", s.steps.verify);
  set.CatchUp("engine_batch_size", s.steps.tokens.counts, s.steps.tokens.sum);
  set.CatchUp("engine_heartbeats_total", s.heartbeat);
  set.Set("engine_last_step_timestamp_seconds", s.steps.last_end_s);
  set.CatchUp("shared_steps_total", s.steps.shared_steps);
  set.CatchUp("shared_step_tokens_total", s.steps.shared_decode_tokens, {{"kind", "answer"}});
  set.CatchUp("shared_step_tokens_total", s.steps.shared_prefill_tokens, {{"kind", "prompt"}});
  set.Set("sharing_gain", s.sharing_gain);
  set.CatchUp("preemptions_total", s.preemptions);
  set.CatchUp("recomputed_tokens_total", s.recomputed_tokens);
  set.Set("bytes_per_token", static_cast<double>(s.bytes_per_token) - SavedBytesPerToken(s.ffn));
}

void ExposeKvCache(const EngineStats& s, MetricSet& set) {
  if (s.kv_bytes == 0) return;
  set.Set("kv_cache_usage_ratio", base::Ratio(s.kv_used_bytes, s.kv_bytes));
  set.Set("kv_cache_tokens", s.kv_tokens);
  set.Set("kv_cache_capacity_tokens", s.kv_capacity_tokens);
}

void ExposePrefixCache(const EngineStats::PrefixCache& c, MetricSet& set) {
  set.CatchUp("prefix_cache_lookups_total", c.hits, {{"result", "hit"}});
  set.CatchUp("prefix_cache_lookups_total", c.partial, {{"result", "partial"}});
  set.CatchUp("prefix_cache_lookups_total", c.misses, {{"result", "miss"}});
  set.CatchUp("prefix_cache_queries_total", c.hit_tokens + c.new_tokens + c.evicted_tokens);
  set.CatchUp("prefix_cache_hits_total", c.hit_tokens);
  set.CatchUp("prefix_cache_missed_tokens_total", c.new_tokens, {{"reason", "new"}});
  set.CatchUp("prefix_cache_missed_tokens_total", c.evicted_tokens, {{"reason", "evicted"}});
  set.CatchUp("kv_cache_evictions_total", c.evictions);
  set.Set("prefix_cache_limit_bytes", c.bytes_max);
  set.Set("prefix_cache_states", c.states);
}

void ExposePrefixFlash(const EngineStats::PrefixFlash& f, MetricSet& set) {
  if (!f.used) return;
  set.Set("prefix_flash_bytes", f.bytes);
  set.Set("prefix_flash_limit_bytes", f.bytes_max);
  set.Set("prefix_flash_blocks", f.blocks);
  set.Set("prefix_flash_queued_blocks", f.queued);
  set.CatchUp("prefix_flash_lookups_total", f.hits, {{"result", "hit"}});
  set.CatchUp("prefix_flash_lookups_total", f.partial, {{"result", "partial"}});
  set.CatchUp("prefix_flash_lookups_total", f.misses, {{"result", "miss"}});
  set.CatchUp("prefix_flash_hit_tokens_total", f.hit_tokens);
  set.CatchUp("prefix_flash_read_bytes_total", f.read_bytes);
  set.CatchUp("prefix_flash_read_seconds_total", f.read_s);
  set.CatchUp("prefix_flash_written_bytes_total", f.written_bytes);
  set.CatchUp("prefix_flash_dropped_blocks_total", f.dropped_for_room, {{"reason", "room"}});
  set.CatchUp("prefix_flash_dropped_blocks_total", f.dropped_by_error, {{"reason", "error"}});
  set.CatchUp("prefix_flash_evicted_blocks_total", f.evicted);
  set.CatchUp("prefix_flash_damaged_blocks_total", f.damaged);
}

void ExposeMemory(const EngineStats& s, MetricSet& set) {
  const auto held = [&](const char* kind, auto bytes, const std::string& device = "cpu") {
    set.Set("memory_bytes", bytes, {{"kind", kind}, {"device", device}});
  };
  held("weights", s.weight_bytes);
  held("kv", s.kv_bytes);
  held("predictors", s.predictor_bytes);
  held("prefix_cache", s.prefix_cache.bytes);
  if (s.flash.used && !s.flash.layers) held("flash_cache", s.flash.cache_bytes);
  if (s.hot.used && s.hot.device != "cpu") held("weights", s.hot.bytes, s.hot.device);
  set.Set("memory_budget_bytes", s.memory_budget);
  set.Set("memory_planned_bytes", s.memory_planned);
}

}  // namespace

void ExposeEngine(const EngineStats& stats, MetricSet& set) {
  set.Set("model_load_seconds", stats.load_s);
  ExposeGrammars(stats, set);
  ExposeQueue(stats, set);
  ExposeSteps(stats, set);
  ExposeKvCache(stats, set);
  ExposePrefixCache(stats.prefix_cache, set);
  ExposePrefixFlash(stats.prefix_flash, set);
  ExposeMemory(stats, set);
}

}  // namespace thermocline::server
