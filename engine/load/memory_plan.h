// Divides a model between memory and flash, so that the whole process stays within a budget.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/model_options.h"
#include "engine/load/ffn_setup.h"
#include "engine/model/weights/weights.h"
#include "engine/store/bundle_format.h"

namespace thermocline::load {

// The sizes of a second transformer over the same weights that drafts while the first one verifies.
struct AheadSizes {
  int tokens_max = 0;     // T of one step, with their logits; 0: there is none
  int threads = 0;        // separate threads; 0: as many as the first has
  bool required = false;  // false: omitted if it does not fit
  // Bytes beside its buffers and a sampler: KV cache, distributions.
  std::function<std::size_t(const model::ModelConfig&)> bytes = {};
};

// The memory of requests' grammars, in bytes.
struct GrammarSizes {
  std::size_t least = 0, most = 0;  // chosen by the plan within these; most = 0: no grammars
  std::size_t of_token = 0;         // bytes per token of the vocabulary, in addition
};

// Default limit on the tokens of a sequence; servers take as many as fit.
inline constexpr int kContextDefault = 8192;

// The sizes of later transformers and caches.
struct WorkSizes {
  int tokens_max = 64;  // T of one call, at least logits_max; 0: PrefillChunk's
  int logits_max = 1;   // tokens of one call whose logits may be requested
  int sharing = 0;      // sequences that may share a step, each with a sampler; 0: none share
  // If no context length is configured, ChooseContext chooses at most this many tokens.
  int context_default_max = kContextDefault;
  // Bytes of the KV cache for sequences of `context` tokens, `whole` as below; empty = one
  // sequence.
  std::function<std::size_t(const model::ModelConfig&, int context, bool whole)> kv_bytes = {};
  GrammarSizes grammars = {};
  // Layers with a window keep all tokens, like the others, as a device may require.
  bool kv_whole = false;
  AheadSizes ahead = {};
};

struct MemoryPlan {
  static constexpr const char* kGrammarsLine = "grammars";
  enum class Tier { kMemory, kNeurons, kLayers };
  Tier tier = Tier::kMemory;
  bool deciding_held = true;             // kNeurons: the deciding rows are all in memory
  std::size_t slots = 0;                 // kNeurons: neurons of the cache
  int stages = 2;                        // kNeurons: layers that may be staged at a time
  int reads = 128;                       // maximum reads in flight
  std::uint32_t read_bytes = 128 << 10;  // kNeurons: maximum bytes of one
  bool read_ahead = true;                // kNeurons: as MemoryOptions
  std::vector<int> stage_of = {};        // kLayers: [L] as store::SpreadStages
  bool ahead = false;                    // kMemory: WorkSizes::ahead is counted
  // Bytes for compiled grammars, and their minimum. The vocabulary index is not included.
  std::size_t grammars = 0, grammars_least = 0;

  struct Line {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Line> lines;
  std::size_t budget = 0;
  std::size_t given_back = 0;  // part of the lines freed after the model was loaded

  std::size_t total() const;
  // Bytes that the budget leaves while the model loads, before grammars need memory.
  std::size_t RoomWhileLoading() const;
  // Adds a line for a permanent allocation, taken from the grammars' bytes if nothing else is left.
  // Returns false, and changes nothing, if it does not fit.
  bool Reserve(const char* name, std::size_t bytes);
  // Adds bytes for grammars.
  void GrowGrammars(std::size_t bytes);
  std::string Table() const;
};

// The part of a model that is held only by a device, which shares the host's memory.
struct DeviceShare {
  int home_layers = 0;      // the first ones: the device computes their attention
  bool head = false;        // if it is a different matrix than the embedding
  bool networks = true;     // of the home layers; false: the host holds them too, for audits
  std::size_t bytes = 0;    // used by the device in the shared memory: weights, KV cache, scratch
  std::size_t passing = 0;  // host memory for one layer during upload
  // [L] if cold neurons come from flash: the device's neurons of each layer, ascending. Empty: it
  // has whole layers.
  std::vector<std::vector<int>> hot = {};

  bool beside_flash() const { return !hot.empty(); }
  // The parts of `wanted` that the host holds.
  model::LayerParts HostParts(int layer, model::LayerParts wanted) const {
    if (layer >= home_layers) return wanted;
    wanted.attention = false;
    if (networks && !beside_flash()) wanted.deciding = wanted.rest = false;
    return wanted;
  }
};

struct MemoryNeeds {
  const model::ModelFile& file;
  const FfnPlan& ffn;
  const ModelOptions& options;
  const WorkSizes& sizes;
  int threads = 1;
  const DeviceShare* device = nullptr;  // null: the host holds everything
  std::size_t adapter_bytes = 0;        // of LoRA adapters
};

// Tokens of a sequence: from the options, or the model's own limit as far as
// sizes.context_default_max and the memory budget allow with everything in memory, at least
// kContextDefault. Errors of the model's tensors as model::LoadWeights.
Result<int> ChooseContext(const MemoryNeeds& needs);

// Everything in memory if it fits; otherwise with the bundle file, if there is one.
// ResourceExhausted, with a table of the memory needed and advice, if it does not fit. Errors of
// the bundle file as store::ReadBundleIndex. `bundle` receives its index if it is used.
Result<MemoryPlan> PlanMemory(const MemoryNeeds& needs, std::optional<store::BundleIndex>& bundle);

}  // namespace thermocline::load
