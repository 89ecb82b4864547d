#include "engine/load/memory_sizes.h"

#include <algorithm>

#include "engine/base/system_memory.h"
#include "engine/exec/transformer.h"
#include "engine/ffn/cpu_experts.h"
#include "engine/ffn/cpu_partition.h"
#include "engine/gpu/device_experts.h"
#include "engine/nn/kv_pool.h"
#include "engine/sampling/sampler.h"

namespace thermocline::load {
namespace {

Result<ModelSizes> MeasureModel(const MemoryNeeds& n) {
  ModelSizes sizes;
  const auto measure = [&](bool shared, model::LayerParts parts) {
    const DeviceShare* device = n.device;
    const auto held = [=](int layer) {
      return device != nullptr ? device->HostParts(layer, parts) : parts;
    };
    const bool head = shared && (device == nullptr || !device->head);
    return model::MeasureWeights(n.file, {.quantize_head = n.options.quantize_head,
                                          .parts = held,
                                          .shared = {.embeddings = shared, .head = head}});
  };
  ASSIGN_OR_RETURN(const auto none, measure(false, {false, false, false, false}));
  ASSIGN_OR_RETURN(const auto shared, measure(true, {false, false, false, false}));
  ASSIGN_OR_RETURN(const auto attention, measure(false, {true, false, false, true}));
  ASSIGN_OR_RETURN(const auto deciding, measure(false, {false, true, false, false}));
  ASSIGN_OR_RETURN(const auto rests, measure(false, {false, false, true, false}));
  ASSIGN_OR_RETURN(auto all, measure(false, {true, true, true}));
  sizes.shared = shared.bytes;
  sizes.attention = attention.bytes - none.bytes;
  sizes.deciding = deciding.bytes - none.bytes;
  sizes.rests = rests.bytes - none.bytes;
  sizes.images = std::move(all.images);
  return sizes;
}

// The largest rank of the side-car's predictors or, if the model's file has its own, an upper
// bound.
int LargestRank(const MemoryNeeds& n) {
  if (!n.ffn.side_car.has_value()) return n.file.config.hidden_size;
  int rank = 0;
  for (const predictor::LayerSideCar& layer : n.ffn.side_car->layers)
    rank = std::max(rank, layer.low_rank.has_value() ? layer.low_rank->rank : 0);
  return rank;
}

// The bytes of both ends of a hot tier, if there may be one.
std::size_t HotBytes(const MemoryNeeds& n, ffn::FfnSizes sizes) {
  const HotOptions& hot = n.options.hot;
  const bool device = hot.device == HotDevice::kCuda ||
                      (hot.device == HotDevice::kAuto && kernels::CudaOps() != nullptr);
  if (!device && hot.bytes == 0 && hot.placement.empty()) return 0;
  sizes.threads = hot.threads > 0 ? hot.threads : n.threads / 2;
  if (sizes.config.experts.any()) {
    const std::size_t block = sizes.flash && !device ? static_cast<std::size_t>(hot.bytes) : 0;
    return block + (device ? gpu::DeviceExperts::HostBytes(sizes.config, sizes.tokens_max)
                           : ffn::CpuExperts::Bytes(sizes));
  }
  const std::size_t other =
      device ? gpu::DeviceForward::HostBytesMax({.config = sizes.config,
                                                 .tokens_max = sizes.tokens_max,
                                                 .logits_max = n.sizes.logits_max,
                                                 .context_length = ContextLength(n),
                                                 .parts_max = std::max(1, n.sizes.sharing),
                                                 .audits = Audits(n.ffn, n.options.ffn)})
             : ffn::CpuPartition::Bytes(sizes);
  return ffn::HybridFfn::Bytes(sizes.config, sizes.tokens_max) + other;
}

ffn::FfnSizes FfnSizesOf(const MemoryNeeds& n, int tokens_max, int threads) {
  return {.config = n.file.config,
          .tokens_max = tokens_max,
          .threads = threads,
          .sign = n.ffn.sign || n.ffn.expert_sign,
          .rank = n.ffn.low_rank ? LargestRank(n) : 0,
          .expert_rows = n.ffn.expert_rows};
}

// The bytes of a transformer and one sequence's sampler.
std::size_t TransformerBytes(const MemoryNeeds& n, const ffn::FfnSizes& ffn, int logits_max) {
  const nn::Workspace::Params sizes{.config = n.file.config,
                                    .tokens_max = ffn.tokens_max,
                                    .logits_max = logits_max,
                                    .context_length = ContextLength(n),
                                    .threads = ffn.threads};
  const std::size_t inputs =
      n.ffn.inputs || n.ffn.may_use_inputs
          ? exec::InputSparsity::Bytes(n.file.config, ffn.sparse_tokens(), ffn.threads)
          : 0;
  return exec::Transformer::BufferBytes(sizes, ffn) + inputs +
         sampling::Sampler::Bytes(n.file.config.vocab_size, ContextLength(n));
}

}  // namespace

int ContextLength(const MemoryNeeds& n) {
  const int model = n.file.config.max_position_embeddings;
  return n.options.context_length > 0 ? n.options.context_length : std::min(model, kContextDefault);
}

std::size_t BufferBytes(const MemoryNeeds& n, MemoryPlan::Tier tier, bool deciding_held) {
  ffn::FfnSizes ffn = FfnSizesOf(n, n.sizes.tokens_max, n.threads);
  ffn.flash = tier == MemoryPlan::Tier::kNeurons;
  ffn.deciding_held = deciding_held;
  const model::ModelConfig& c = n.file.config;
  return TransformerBytes(n, ffn, n.sizes.logits_max) +
         sampling::Sampler::BytesOf(n.sizes.sharing, n.threads, c.vocab_size, ContextLength(n)) +
         HotBytes(n, ffn);
}

std::size_t AheadBytes(const MemoryNeeds& n) {
  const AheadSizes& ahead = n.sizes.ahead;
  const int threads = ahead.threads > 0 ? ahead.threads : n.threads;
  return TransformerBytes(n, FfnSizesOf(n, ahead.tokens_max, threads), ahead.tokens_max) +
         (ahead.bytes ? ahead.bytes(n.file.config) : 0);
}

std::size_t KvBytes(const MemoryNeeds& n) {
  if (n.sizes.kv_bytes) return n.sizes.kv_bytes(n.file.config, ContextLength(n), n.sizes.kv_whole);
  return (nn::BlocksFor(ContextLength(n)) + 1) *
         nn::KvPool::BlockBytes(n.file.config, n.options.kv_type);
}

Result<ModelSizes> SizesOf(const MemoryNeeds& needs) {
  ASSIGN_OR_RETURN(ModelSizes sizes, MeasureModel(needs));
  sizes.kv = KvBytes(needs);
  sizes.predictors = PredictorBytes(needs.file.config, needs.ffn, needs.options.ffn);
  const std::size_t resident = base::ResidentBytes();
  sizes.process = resident - std::min(resident, needs.options.memory.resident_before);
  return sizes;
}

}  // namespace thermocline::load
