// Collects the engine's statistics from its parts.
#include "engine/engine_impl.h"

namespace thermocline {

namespace {

// The type of a middle layer, which quantisers use for most layers.
std::string WeightTypeOf(const model::Weights& weights) {
  const model::LayerWeights& middle = weights.layers[weights.layers.size() / 2];
  return kernels::Traits(middle.attn_output.weight.type).name;
}

}  // namespace

EngineStats Engine::Impl::Stats() const {
  const sched::RequestQueue::Counts queued = queue_->counts();
  const sched::RequestQueue::Limits limits = queue_->limits();
  return {.model_path = model_->path,
          .model_format = model_->format,
          .architecture = std::string(model_->config.architecture->name),
          .cpu_isa = model_->ops->name,
          .context_length = cache_.capacity(),
          .context_length_trained = model_->config.max_position_embeddings,
          .hidden_size = model_->config.hidden_size,
          .vocab_size = model_->config.vocab_size,
          .weight_type = WeightTypeOf(*model_->weights),
          .threads = model_->pool->threads() + model_->hot_threads,
          .running = scheduler_->figures().begun,
          .paused = scheduler_->figures().paused,
          .waiting = queued.places(),
          .reserved = queued.reserved,
          .sequences_max = scheduler_->sequences_max(),
          .queue_capacity = limits.requests,
          .queue_prefill_tokens = queued.tokens,
          .queue_prefill_tokens_max = limits.tokens,
          .preemptions = scheduler_->figures().preemptions,
          .recomputed_tokens = steps_.recomputed_tokens,
          .kv_used_bytes = scheduler_->figures().kv_used_bytes,
          .num_parameters = model_->config.num_parameters(),
          .weight_bytes = model_->weights->memory.held(),
          .bytes_per_token =
              model_->weights->bytes_per_step(model_->config.experts.num_experts_per_tok),
          .kv_bytes = pool_->bytes(),
          .sharing_gain = scheduler_->figures().sharing_gain,
          .kv_tokens = scheduler_->figures().kv_tokens,
          .kv_capacity_tokens = pool_->blocks() * kernels::kKvBlock,
          .kv_type = std::string(KvTypeName(pool_->type())),
          .load_s = model_->load_s,
          .prefix_cache = PrefixStats(),
          .prefix_flash = PrefixFlashStats(),
          .ffn_automatic = model_->ffn_automatic,
          .ffn_offered = model_->OfferedModes(),
          .audit_shadow = model_->audit_shadow,
          .predictor_bytes = model_->predictors->bytes,
          .side_car = model_->side_car_path,
          .ffn = governor_.Stats(),
          .flash = FlashStats(),
          .hot = governor_.Hot(),
          .experts = governor_.Experts(),
          .spec = Speculation(),
          .grammar = grammars_.Stats(),
          .memory_budget = model_->memory.budget,
          .memory_planned = model_->memory.total(),
          .weights_read = model_->weights_read,
          .steps = steps_.Read(),
          .heartbeat = heartbeat_.load(std::memory_order_relaxed)};
}

EngineStats::PrefixCache Engine::Impl::PrefixStats() const {
  const nn::PrefixCacheCounters& c = prefixes_.counters();
  const std::int64_t whole = pool_->block_bytes(nn::KvKind::kWhole),
                     window = pool_->block_bytes(nn::KvKind::kWindow);
  const std::int64_t state = pool_->states().state_bytes();
  return {.hits = c.hits,
          .partial = c.partial,
          .misses = c.misses,
          .hit_tokens = c.hit_tokens,
          .new_tokens = c.new_tokens,
          .evicted_tokens = c.evicted_tokens,
          .evictions = c.evictions,
          .bytes = c.blocks * whole + c.window_blocks * window + c.states * state,
          .bytes_max = prefix_blocks_.whole * whole + prefix_blocks_.window * window +
                       prefix_blocks_.states * state,
          .states = c.states};
}

EngineStats::PrefixFlash Engine::Impl::PrefixFlashStats() const {
  if (flash_prefixes_ == nullptr) return {};
  const prefix::FlashPrefixCounters& c = flash_prefixes_->counters();
  const prefix::PrefixWriterCounters* writes = flash_prefixes_->writer_counters();
  const prefix::FlashPrefixes::FileFigures files = flash_prefixes_->figures();
  return {.used = true,
          .read_only = flash_prefixes_->read_only(),
          .folder = flash_prefixes_->folder(),
          .hits = c.hits,
          .partial = c.partial,
          .misses = c.misses,
          .hit_tokens = c.hit_tokens,
          .blocks = files.blocks,
          .evicted = files.evicted,
          .damaged = files.damaged,
          .bytes = files.bytes,
          .bytes_max = files.bytes_max,
          .read_bytes = files.read_bytes,
          .written_bytes = files.written_bytes,
          .queued = writes != nullptr ? writes->queued.load() : 0,
          .dropped_for_room = writes != nullptr ? writes->dropped_for_room.load() : 0,
          .dropped_by_error = writes != nullptr ? writes->dropped_by_error.load() : 0,
          .read_s = c.read_s};
}

EngineStats::Flash Engine::Impl::FlashStats() const {
  if (model_->memory.tier == load::MemoryPlan::Tier::kMemory) return {};
  const store::BlockReader& reader =
      model_->flash != nullptr ? model_->flash->reader() : model_->stream->reader();
  return {.used = true,
          .bundle = reader.path(),
          .method = reader.method(),
          .layers = model_->stream != nullptr,
          .cache_bytes =
              model_->flash != nullptr ? model_->flash->slots() * model_->flash->slot_bytes() : 0,
          .counters = governor_.Flash()};
}

SpecStats Engine::Impl::Speculation() const {
  const base::MutexLock lock(spec_mutex_);
  return spec_stats_;
}

}  // namespace thermocline
