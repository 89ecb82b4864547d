#include "engine/kv_memory.h"

#include <algorithm>

#include "engine/engine_parts.h"

namespace thermocline {
namespace {

using nn::KvCount;

constexpr std::int64_t kPrefixBlocksMax = 1 << 24;
// For layers with a window: number of windows kept for finished requests, and the minimum number of
// blocks for them.
constexpr int kWindowsKept = 4, kWindowBlocksKept = 64;

// KV blocks that finished requests may keep, and all blocks.
struct KvBlocks {
  std::int64_t prefix = 0, all = 0;
  int window_prefix = 0, window = 0;  // 0: layers with a window keep whole sequences
};

KvBlocks CountWhole(std::size_t block_bytes, int context, std::int64_t prefix_cache_bytes) {
  const int context_blocks = nn::BlocksFor(context);
  const std::int64_t kept = prefix_cache_bytes < 0
                                ? context_blocks
                                : prefix_cache_bytes / static_cast<std::int64_t>(block_bytes);
  return {kept, context_blocks + 1 + kept};
}

// For layers with a window: the blocks that all sequences that may be started see, and the tokens
// of a step.
int WindowsBegun(const EngineConfig& config, const model::ModelConfig& model) {
  const int asked = config.serving.prefill_chunk;
  const int chunk = std::max(asked > 0 ? asked : load::PrefillChunk(model), StepLogitsMax(config));
  return config.serving.sequences_max * nn::WindowBlocks(model.sliding_window) +
         nn::BlocksFor(chunk) + 1;
}

// Counts layers with a window separately. The blocks of finished requests are divided: windows get
// as many as they need, the other layers the rest.
KvBlocks CountApart(const EngineConfig& config, const model::ModelConfig& model, KvType type,
                    int context) {
  const nn::ByKvKind<std::size_t> bytes = nn::KvPool::BlockBytesByKind(model, type);
  const std::int64_t asked = config.serving.prefix_cache_bytes;
  const std::int64_t windows =
      std::max(kWindowBlocksKept, kWindowsKept * nn::BlocksFor(model.sliding_window));
  KvBlocks blocks = CountWhole(bytes.whole + bytes.window, context, asked);
  const std::int64_t kept = blocks.prefix;
  blocks.window_prefix = static_cast<int>(std::min(kept, windows));
  blocks.window = WindowsBegun(config, model) + blocks.window_prefix;
  if (asked < 0 || bytes.whole == 0) return blocks;
  const auto left = asked - blocks.window_prefix * static_cast<std::int64_t>(bytes.window);
  blocks.prefix = left / static_cast<std::int64_t>(bytes.whole);
  blocks.all += blocks.prefix - kept;
  return blocks;
}

// The states of recurrent layers: of sequences, and snapshots that finished requests may keep,
// which take half of what these may keep, in [kSnapshotsMin, kSnapshotsMax] where nobody says how
// much that is.
struct States {
  int sequences = 0, kept = 0, pending = 0;
  std::size_t state_bytes = 0;
  std::size_t bytes() const { return (sequences + kept) * state_bytes; }
  std::int64_t kept_bytes() const { return kept * static_cast<std::int64_t>(state_bytes); }
};

States CountStates(const EngineConfig& config, const model::ModelConfig& model, int context) {
  constexpr std::int64_t kSnapshotsMin = 8, kSnapshotsMax = 64;
  if (!model.recurrent.any()) return {};
  States states{.sequences = config.serving.sequences_max,
                .pending = std::min(StepLogitsMax(config), kDraftTokensMax + 1)};
  states.state_bytes = nn::StatePool::Bytes(model, states.pending);
  const std::int64_t state = states.state_bytes;
  const std::int64_t asked = config.serving.prefix_cache_bytes;
  const std::int64_t blocks =
      nn::BlocksFor(context) * nn::KvPool::BlockBytes(model, load::KvTypeOf(config.model, model));
  const std::int64_t fit = (asked < 0 ? blocks : asked) / 2 / state;
  states.kept = static_cast<int>(asked < 0 ? std::clamp(fit, kSnapshotsMin, kSnapshotsMax)
                                           : std::min(fit, kSnapshotsMax));
  return states;
}

KvBlocks CountBlocks(const EngineConfig& config, const model::ModelConfig& model, KvType type,
                     int context, bool whole) {
  const std::int64_t asked = config.serving.prefix_cache_bytes;
  const std::int64_t of_blocks =
      asked < 0 ? asked : asked - CountStates(config, model, context).kept_bytes();
  const KvBlocks together = CountWhole(nn::KvPool::BlockBytes(model, type), context, of_blocks);
  if (whole || model.recurrent.any() || nn::KvPool::BlockBytesByKind(model, type).window == 0)
    return together;
  const KvBlocks apart = CountApart(config, model, type, context);
  return apart.window < together.all ? apart : together;
}

// The bytes of 64 tokens of an encoder's text beside its K and V (exec::TextProgress).
std::size_t TextBytes(const model::ModelConfig& model) {
  return model.architecture->encoder ? kernels::kKvBlock * model.hidden_size * sizeof(float) : 0;
}

}  // namespace

std::size_t KvBytes(const EngineConfig& config, const model::ModelConfig& model, int context,
                    bool whole) {
  const KvType type = load::KvTypeOf(config.model, model);
  const KvBlocks blocks = CountBlocks(config, model, type, context, whole);
  if (blocks.window == 0)
    return blocks.all * (nn::KvPool::BlockBytes(model, type) + TextBytes(model)) +
           CountStates(config, model, context).bytes();
  const nn::ByKvKind<std::size_t> bytes = nn::KvPool::BlockBytesByKind(model, type);
  return blocks.all * bytes.whole + blocks.window * bytes.window;
}

Result<KvMemory> TakeKvMemory(const EngineConfig& config, const load::LoadedModel& model) {
  const int model_context = model.config.max_position_embeddings;
  const int context = model.context;
  if (context > model_context) {
    return base::InvalidArgument("context_length is ", context, ", but the model was made for ",
                                 model_context);
  }
  const KvBlocks blocks = CountBlocks(config, model.config, model.kv_type, context, model.kv_whole);
  if (blocks.prefix > kPrefixBlocksMax)
    return base::InvalidArgument("prefix_cache.memory is ", config.serving.prefix_cache_bytes, ", ",
                                 blocks.prefix, " blocks; at most ", kPrefixBlocksMax,
                                 " are supported");
  const States states = CountStates(config, model.config, context);
  ASSIGN_OR_RETURN(auto pool, nn::KvPool::Create({.config = model.config,
                                                  .blocks = static_cast<int>(blocks.all),
                                                  .type = model.kv_type,
                                                  .window_blocks = blocks.window,
                                                  .states = states.sequences + states.kept,
                                                  .pending = states.pending}));
  return KvMemory{std::move(pool),
                  context,
                  {static_cast<int>(blocks.prefix), blocks.window_prefix, states.kept}};
}

}  // namespace thermocline
