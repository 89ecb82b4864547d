// Divides a model between memory and flash, so that the whole process keeps within a budget.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/model_options.h"
#include "engine/load/ffn_setup.h"
#include "engine/model/weights.h"
#include "engine/store/bundle_format.h"

namespace thermocline::load {

// The sizes of a second transformer over the same weights, which drafts while the first one
// verifies.
struct AheadSizes {
  int tokens_max = 0;     // T of one step, with their logits; 0: there is none
  int threads = 0;        // of its own; 0: as many as the first has
  bool required = false;  // false: left out where it does not fit
  // Beside its buffers and a sampler: K and V, distributions.
  std::function<std::size_t(const model::ModelConfig&)> bytes = {};
};

// The memory of requests' grammars, in bytes.
struct GrammarSizes {
  std::size_t least = 0, most = 0;  // the plan chooses; most = 0: there are none
  std::size_t of_token = 0;         // of the vocabulary, beside it
};

// Tokens of a sequence where nobody says how many, at most; servers take as many as fit.
inline constexpr int kContextDefault = 8192;

// The sizes of later transformers and caches.
struct WorkSizes {
  int tokens_max = 64;  // T of one call, at least logits_max; 0: PrefillChunk's
  int logits_max = 1;   // tokens of one call whose logits may be asked for
  int sharing = 0;      // sequences that may share a step, each with a sampler; 0: none do
  // Tokens of a sequence that nobody asked for, at most: ChooseContext.
  int context_default_max = kContextDefault;
  // Keys and values, with sequences of so many tokens, `whole` as below; empty = one sequence.
  std::function<std::size_t(const model::ModelConfig&, int context, bool whole)> kv_bytes = {};
  GrammarSizes grammars = {};
  // Layers with a window keep all tokens, as the others: a device may have them so.
  bool kv_whole = false;
  AheadSizes ahead = {};
};

struct MemoryPlan {
  static constexpr const char* kGrammarsLine = "grammars";
  enum class Tier { kMemory, kNeurons, kLayers };
  Tier tier = Tier::kMemory;
  bool deciding_held = true;             // kNeurons: the deciding rows are all in memory
  std::size_t slots = 0;                 // kNeurons: neurons of the cache
  int stages = 2;                        // kNeurons: layers that may pass through at a time
  int reads = 128;                       // under way at a time
  std::uint32_t read_bytes = 128 << 10;  // kNeurons: of one, at most
  bool read_ahead = true;                // kNeurons: as MemoryOptions
  std::vector<int> stage_of = {};        // kLayers: [L] as store::SpreadStages
  bool ahead = false;                    // kMemory: WorkSizes::ahead is counted
  // The part of the line of grammars that the vocabulary does not take, and its least value.
  std::size_t grammars = 0, grammars_least = 0;

  struct Line {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Line> lines;
  std::size_t budget = 0;
  std::size_t given_back = 0;  // of the lines, once the model was loaded

  std::size_t total() const;
  // The bytes that the budget leaves while the model loads: grammars come later.
  std::size_t RoomWhileLoading() const;
  // Adds a line for what stays, at the cost of grammars where nothing else is left. False: it does
  // not fit, and nothing is taken.
  bool Take(const char* name, std::size_t bytes);
  // Gives so many bytes more to grammars.
  void GrowGrammars(std::size_t bytes);
  std::string Table() const;
};

// The part of a model on a device that shares the host's memory, which the host does not hold.
struct DeviceShare {
  int home_layers = 0;      // the first ones: their attention
  bool head = false;        // if it is another matrix than the embedding
  bool networks = true;     // of the home layers; false: the host holds them, too, for audits
  std::size_t bytes = 0;    // that the device takes of the one memory: weights, KV cache, scratch
  std::size_t passing = 0;  // of the host's memory, for a layer on its way there
  // [L] where cold neurons come from flash: those that the device has of each layer, ascending.
  // Empty: it has whole layers.
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
  const DeviceShare* device = nullptr;  // null: the host holds all
};

// Tokens of a sequence: what the options say, or the model's own as far as
// sizes.context_default_max and the memory budget allow with everything in memory, kContextDefault
// at least. Errors of the model's tensors as model::LoadWeights.
Result<int> ChooseContext(const MemoryNeeds& needs);

// Everything in memory if it fits; else with the bundle file, if there is one. ResourceExhausted,
// with a table of what needs what, if it does not fit, and what can be done. Errors of the bundle
// file as store::ReadBundleIndex. `bundle` receives its index if it is used.
Result<MemoryPlan> PlanMemory(const MemoryNeeds& needs, std::optional<store::BundleIndex>& bundle);

}  // namespace thermocline::load
