#include "engine/prefix_tier.h"

#include "engine/base/log.h"

namespace thermocline {
namespace {

// The version of the arithmetic: raised whenever the same tokens get another KV cache, because bits
// of a product, of attention or of a norm change, or the layout of a block.
constexpr int kArithmetic = 2;

// Everything that a block's bytes depend on beside its tokens.
std::string Fingerprint(const EngineConfig& config, const load::LoadedModel& model,
                        const nn::KvPool& pool) {
  const model::ModelConfig& c = model.config;
  const bool beyond = model.context > c.rope.original_max_position;  // other rotations
  return StrCat(kArithmetic, "|", model.fingerprint, "|", KvTypeName(pool.type()), "|",
                model.ops->name, "|", model::ActivationName(c.hidden_act), "|",
                config.model.ffn.modes, "|", config.model.ffn.kl_max, "|", beyond, "|",
                pool.window(), "|", pool.block_bytes());
}

}  // namespace

Result<std::unique_ptr<prefix::FlashPrefixes>> OpenPrefixTier(const EngineConfig& config,
                                                              const load::LoadedModel& model,
                                                              nn::KvPool& pool) {
  const ServingOptions& serving = config.serving;
  if (serving.prefix_path.empty()) return std::unique_ptr<prefix::FlashPrefixes>();
  if (model.device != nullptr || model.device_experts != nullptr) {
    base::LogWarning(
        "prefix_cache.path is not used: a GPU holds the KV cache of this model, which is kept in "
        "memory alone");
    return std::unique_ptr<prefix::FlashPrefixes>();
  }
  if (pool.block_bytes(nn::KvKind::kWhole) == 0) {
    base::LogWarning(
        "prefix_cache.path is not used: every layer of this model sees a window alone, and keeps "
        "nothing of longer prefixes");
    return std::unique_ptr<prefix::FlashPrefixes>();
  }
  auto tier = prefix::FlashPrefixes::Open(pool, {.folder = serving.prefix_path,
                                                 .bytes_max = serving.prefix_path_bytes,
                                                 .fingerprint = Fingerprint(config, model, pool)});
  // A full or broken disk takes the flash tier away, and nothing else.
  const StatusCode code = tier.status().code();
  if (code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted) {
    base::LogWarning("prefix_cache.path is not used: ", tier.status().message());
    return std::unique_ptr<prefix::FlashPrefixes>();
  }
  if (!tier.ok()) return tier.status().Annotate("prefix_cache.path");
  const prefix::FlashPrefixes::FileFigures figures = (*tier)->figures();
  base::LogInfo("prefix cache on flash: ", serving.prefix_path, ", ",
                base::HumanBytes(figures.bytes), " of ", base::HumanBytes(figures.bytes_max),
                (*tier)->read_only() ? "; another process writes it, so it is only read" : "");
  return tier;
}

}  // namespace thermocline
