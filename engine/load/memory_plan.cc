#include "engine/load/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/ratio.h"
#include "engine/base/system_memory.h"
#include "engine/load/memory_sizes.h"
#include "engine/model/expert_rows.h"
#include "engine/model/fingerprint.h"
#include "engine/model/weights/input_major.h"
#include "engine/store/layer_stream.h"
#include "engine/store/neuron_store.h"

namespace thermocline::load {
namespace {

// The memory of libraries, threads, queues and heap fragmentation, which has no line of its own in
// the plan: measured as 11 to 19 MiB with the daemon under load.
constexpr std::size_t kMargin = std::size_t{32} << 20;
constexpr std::size_t kReadAlignment = 4096;
// The share of the networks' bytes that buffers of reads in flight may take. To stay within it,
// reads are made smaller first, down to kReadBytesMin, and then fewer, down to kReadsMin.
constexpr double kReadsShareMax = 0.04;
constexpr std::uint32_t kReadBytesMin = 16 << 10;
constexpr int kReadsMin = 8;
// A second stage allows reading ahead during prefill; above this share of the networks' memory, a
// larger cache is worth more.
constexpr double kSecondStageShareMax = 0.08;

// Grammars get at most 1/kGrammarsShare of the budget, and of the bytes left for the neuron cache.
constexpr std::size_t kGrammarsShare = 8;

constexpr const char* kShrink =
    "This is the least, with the bundle file in use: give more memory, or take a shorter context, "
    "a "
    "smaller prefix cache or a smaller model";

std::size_t S(int value) { return value; }

class Planner {
 public:
  Planner(const MemoryNeeds& needs, ModelSizes sizes) : n_(needs), sizes_(std::move(sizes)) {
    budget_ = base::MemoryBudget(needs.options.memory.budget_bytes);
  }

  // Everything in memory; with drafts ahead if they are requested and either required or fit.
  MemoryPlan InMemory() const {
    MemoryPlan plan = Fixed(MemoryPlan::Tier::kMemory);
    plan.lines.push_back({"feed-forward networks", sizes_.networks()});
    if (n_.ffn.inputs && n_.options.ffn.input_layout == InputLayout::kRows)
      plan.lines.push_back({"copies for mode inputs", model::InputMajorBytes(n_.file)});
    if (n_.sizes.ahead.tokens_max == 0) return plan;
    MemoryPlan with = plan;
    with.ahead = true;
    with.lines.push_back({"drafts ahead by the model itself", AheadBytes(n_)});
    return n_.sizes.ahead.required || Fits(with) ? with : plan;
  }

  // Gives grammars one part in `parts` of the remaining bytes.
  MemoryPlan WithGrammars(MemoryPlan plan, std::size_t parts) const {
    const std::size_t left = budget_ > plan.total() ? budget_ - plan.total() : 0;
    const std::size_t more =
        std::min(GrammarsWanted(), plan.grammars + left / parts) - plan.grammars;
    plan.GrowGrammars(more);
    return plan;
  }

  std::size_t GrammarsWanted() const {
    const GrammarSizes& g = n_.sizes.grammars;
    return std::max(g.least, std::min(g.most, budget_ / kGrammarsShare));
  }

  bool Fits(const MemoryPlan& plan) const {
    return n_.options.memory.ffn_share > 0 ? n_.options.memory.ffn_share >= 1
                                           : plan.total() <= budget_;
  }

  Result<MemoryPlan> WithNeurons(const store::BundleIndex& index) const {
    // Modes that read all deciding rows for every token need them in memory.
    const auto reads_all = [](FfnMode mode) { return !ffn::Predicts(mode); };
    std::vector<FfnMode> wanted = n_.ffn.also;
    wanted.insert(wanted.end(), n_.ffn.modes.layers.begin(), n_.ffn.modes.layers.end());
    const bool deciding_wanted = (n_.ffn.modes.automatic && n_.ffn.candidates.empty()) ||
                                 std::any_of(wanted.begin(), wanted.end(), reads_all);
    if (deciding_wanted && !index.layout.of_experts()) {
      const auto plan = NeuronPlan(index, true);
      if (plan.has_value()) return *plan;
    }
    const auto plan = NeuronPlan(index, false);
    if (plan.has_value()) return *plan;
    return Refuse(NeuronLines(index, false, 1), kShrink);
  }

  Result<MemoryPlan> WithLayers() const {
    const int layers = n_.file.config.num_hidden_layers;
    const std::size_t image = *std::max_element(sizes_.images.begin(), sizes_.images.end());
    for (int held = layers - 2; held >= 0; --held) {
      MemoryPlan plan = Fixed(MemoryPlan::Tier::kLayers);
      plan.stage_of = store::SpreadStages(layers, held);
      std::size_t held_bytes = 0;
      for (std::size_t l = 0; l < S(layers); ++l)
        held_bytes += plan.stage_of[l] < 0 ? sizes_.images[l] : 0;
      plan.lines.push_back({"layers in memory", held_bytes});
      plan.lines.push_back({"flash: two layers on their way", 2 * image});
      const double share =
          base::Ratio(held_bytes + 2 * image, sizes_.attention + sizes_.networks());
      if (n_.options.memory.ffn_share > 0 ? share <= n_.options.memory.ffn_share + 1e-9
                                          : plan.total() <= budget_)
        return WithGrammars(plan, 1);
      if (held == 0) return Refuse(plan, kShrink);
    }
    return Refuse(Fixed(MemoryPlan::Tier::kLayers), kShrink);
  }

  // `plan`: the smallest possible plan.
  Status Refuse(const MemoryPlan& plan, const std::string& advice) const {
    if (n_.options.memory.ffn_share > 0 && !model::HasExpertRows(n_.file)) return RefuseShare(plan);
    return base::ResourceExhausted(n_.file.path, ": needs ", base::HumanBytes(plan.total()),
                                   ", more than the ", base::HumanBytes(budget_),
                                   n_.options.memory.budget_bytes > 0
                                       ? " of the memory budget"
                                       : " that the system has free for it (a memory budget "
                                         "that is given decides instead)",
                                   ":\n", plan.Table(), advice)
        .WithNumber("bytes_needed", static_cast<std::int64_t>(plan.total()));
  }

 private:
  // The memory needed regardless of flash; the tier of whole layers has attention on flash too.
  MemoryPlan Fixed(MemoryPlan::Tier tier, bool deciding_held = true) const {
    MemoryPlan plan;
    plan.tier = tier;
    plan.budget = budget_;
    plan.lines = {{"program and vocabulary", sizes_.process + kMargin},
                  {"embeddings and head", sizes_.shared}};
    if (tier != MemoryPlan::Tier::kLayers)
      plan.lines.push_back({"attention and norms", sizes_.attention});
    if (n_.device != nullptr) {
      plan.lines.push_back({"GPU: weights, KV cache, buffers", n_.device->bytes});
      plan.lines.push_back({"GPU: a layer on its way there", n_.device->passing});
    }
    if (n_.options.memory.requests_bytes > 0)
      plan.lines.push_back({"requests", n_.options.memory.requests_bytes});
    if (n_.adapter_bytes > 0) plan.lines.push_back({"LoRA adapters", n_.adapter_bytes});
    if (sizes_.predictors > 0) plan.lines.push_back({"predictors", sizes_.predictors});
    if (const GrammarSizes& g = n_.sizes.grammars; g.most > 0) {
      plan.grammars = plan.grammars_least = g.least;
      plan.lines.push_back(
          {MemoryPlan::kGrammarsLine, g.of_token * S(n_.file.config.vocab_size) + g.least});
    }
    plan.lines.push_back({"KV cache", sizes_.kv});
    plan.lines.push_back({"buffers of a step", BufferBytes(n_, tier, deciding_held)});
    return plan;
  }

  Status RefuseShare(const MemoryPlan& plan) const {
    const bool neurons = plan.tier == MemoryPlan::Tier::kNeurons;
    std::size_t least = plan.lines.back().bytes;
    if (plan.tier == MemoryPlan::Tier::kLayers) least += plan.lines[plan.lines.size() - 2].bytes;
    const std::size_t all = sizes_.networks() + (neurons ? 0 : sizes_.attention);
    return base::ResourceExhausted(
        n_.file.path, ": a share of ", n_.options.memory.ffn_share,
        " of the weights is too little: reading the others from flash takes ",
        base::HumanBytes(least), " itself, ",
        std::ceil(1000 * static_cast<double>(least) / static_cast<double>(all)) / 1000, " of them");
  }

  MemoryPlan NeuronLines(const store::BundleIndex& index, bool deciding_held, int stages) const {
    MemoryPlan plan = Fixed(MemoryPlan::Tier::kNeurons, deciding_held);
    plan.deciding_held = deciding_held;
    plan.read_ahead = n_.options.memory.read_ahead;
    plan.stages = stages;
    if (deciding_held) plan.lines.push_back({"gate rows", sizes_.deciding});
    FitReads(index.layout.bundle_bytes(), plan);
    const store::NeuronStore::Options options{
        .queue = {.rest_only = deciding_held, .read_bytes_max = plan.read_bytes}, .stages = stages};
    plan.lines.push_back(
        {"flash: what is on its way",
         store::NeuronStore::FixedBytes(index, options, plan.reads, kReadAlignment)});
    return plan;
  }

  // The buffer of a read is at least as large as a bundle.
  void FitReads(std::size_t bundle_bytes, MemoryPlan& plan) const {
    const double room = kReadsShareMax * static_cast<double>(sizes_.networks());
    const auto fits = [&] {
      const std::size_t each = std::max<std::size_t>(plan.read_bytes, bundle_bytes);
      return static_cast<double>(plan.reads * each) <= room;
    };
    while (!fits() && plan.read_bytes > kReadBytesMin) plan.read_bytes /= 2;
    while (!fits() && plan.reads > kReadsMin) plan.reads /= 2;
  }

  // The plan with neurons on flash; nullopt: it does not fit.
  std::optional<MemoryPlan> NeuronPlan(const store::BundleIndex& index, bool deciding_held) const {
    const std::size_t slot = store::NeuronStore::SlotBytes(index.layout, deciding_held);
    const std::size_t stage = S(index.intermediate_size) * slot;
    const std::size_t room = RoomForNetworks(deciding_held);
    const bool two = static_cast<double>(stage) <= kSecondStageShareMax * static_cast<double>(room);
    MemoryPlan plan = NeuronLines(index, deciding_held, two ? 2 : 1);
    plan = WithGrammars(std::move(plan), kGrammarsShare);
    std::size_t used = plan.total(), limit = budget_;
    if (n_.options.memory.ffn_share > 0) {
      used = plan.lines.back().bytes + (deciding_held ? sizes_.deciding : 0);
      limit = static_cast<std::size_t>(n_.options.memory.ffn_share *
                                       static_cast<double>(sizes_.networks()));
    }
    if (used > limit) return std::nullopt;
    constexpr std::size_t kTables = 4 + 16;  // of a slot
    plan.slots = std::min((limit - used) / (slot + kTables),
                          S(index.intermediate_size) * S(index.num_hidden_layers));
    plan.lines.push_back({index.layout.of_experts() ? "expert cache" : "neuron cache",
                          plan.slots * (slot + kTables)});
    return plan;
  }

  std::size_t RoomForNetworks(bool deciding_held) const {
    if (n_.options.memory.ffn_share > 0)
      return static_cast<std::size_t>(n_.options.memory.ffn_share *
                                      static_cast<double>(sizes_.networks()));
    const std::size_t fixed = Fixed(MemoryPlan::Tier::kNeurons, deciding_held).total() +
                              (deciding_held ? sizes_.deciding : 0);
    return budget_ > fixed ? budget_ - fixed : 0;
  }

  const MemoryNeeds& n_;
  const ModelSizes sizes_;
  std::size_t budget_ = 0;
};

// Allowance for memory that this and other processes may take between the choice of a context and
// the plan, which queries the system again: without it, a context that just fits could be refused
// then.
std::size_t TakenMeanwhile(const MemoryPlan& plan) { return (4 << 20) + plan.total() / 64; }

// True if sequences of `context` tokens fit with everything in memory, including the transformer
// that drafts ahead (if configured), all grammars wanted, and the allowance of TakenMeanwhile.
bool ContextFits(const MemoryNeeds& needs, ModelSizes sizes, int context) {
  ModelOptions options = needs.options;
  options.context_length = context;
  WorkSizes work = needs.sizes;
  work.ahead.required = true;  // counted
  const MemoryNeeds wanted{needs.file, needs.ffn, options, work, needs.threads, needs.device};
  sizes.kv = KvBytes(wanted);
  const Planner planner(wanted, std::move(sizes));
  MemoryPlan plan = planner.InMemory();
  plan.lines.push_back({"taken meanwhile", TakenMeanwhile(plan)});
  plan.lines.push_back({"grammars, more of them", planner.GrammarsWanted() - plan.grammars});
  return planner.Fits(plan);
}

}  // namespace

Result<int> ChooseContext(const MemoryNeeds& needs) {
  constexpr int kStep = 1024;  // tokens
  const int model = needs.file.config.max_position_embeddings;
  const int most = std::min(model, needs.sizes.context_default_max);
  if (needs.options.context_length > 0 || most <= kContextDefault) return ContextLength(needs);
  ASSIGN_OR_RETURN(const ModelSizes sizes, SizesOf(needs));
  if (ContextFits(needs, sizes, most)) return most;
  int fits = kContextDefault / kStep, too_many = most / kStep + 1;
  while (fits + 1 < too_many) {
    const int middle = (fits + too_many) / 2;
    (ContextFits(needs, sizes, middle * kStep) ? fits : too_many) = middle;
  }
  if (ContextFits(needs, sizes, fits * kStep))
    base::LogInfo("context: ", fits * kStep, " of the model's ", model,
                  " tokens fit into memory (engine.context_length sets it)");
  return fits * kStep;
}

Result<MemoryPlan> PlanMemory(const MemoryNeeds& needs, std::optional<store::BundleIndex>& bundle) {
  ASSIGN_OR_RETURN(ModelSizes sizes, SizesOf(needs));
  const Planner planner(needs, std::move(sizes));
  const MemoryPlan in_memory = planner.InMemory();
  if (planner.Fits(in_memory)) {
    if (!needs.options.memory.bundle.empty())
      base::LogInfo("the model fits into memory: ", needs.options.memory.bundle, " is not used");
    return planner.WithGrammars(in_memory, 1);
  }
  if (model::HasExpertRows(needs.file))
    return planner.Refuse(
        in_memory,
        "The experts' down projections lie along rows, and from flash come whole experts "
        "along columns: leave out --down-layout rows, or `thermocline convert --down "
        "columns`; or give more memory");
  const bool asked = !needs.options.memory.bundle.empty();
  const std::string path = asked ? needs.options.memory.bundle : store::BundlePath(needs.file.path);
  if (!asked && !base::PathExists(path)) {
    if (needs.options.memory.ffn_share > 0)
      return base::NotFound(path, ": there is no bundle file; `thermocline pack` makes it");
    return planner.Refuse(
        in_memory,
        "`thermocline pack` makes a bundle file, from which what does not fit is read while tokens "
        "are computed; or give more memory, or take a shorter context");
  }
  ASSIGN_OR_RETURN(const std::string hash, model::Fingerprint(needs.file));
  const model::ModelConfig& c = needs.file.config;
  ASSIGN_OR_RETURN(bundle,
                   store::ReadBundleIndex(path, {.model_hash = hash,
                                                 .hidden_size = c.hidden_size,
                                                 .intermediate_size = c.units_per_layer(),
                                                 .num_hidden_layers = c.num_hidden_layers,
                                                 .expert_neurons = c.experts.intermediate_size}));
  if (bundle->kind == store::BundleIndex::Kind::kLayers) return planner.WithLayers();
  return planner.WithNeurons(*bundle);
}

}  // namespace thermocline::load
