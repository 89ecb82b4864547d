#include "engine/placement/solver.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "engine/base/index.h"
#include "engine/placement/numbers.h"
#include "engine/placement/repair.h"

namespace thermocline::placement {
namespace {

constexpr double kPrecision = 1e-12;  // relative, of the time of a token

// A variant with or without the deciding rows in RAM.
struct Variant {
  Variant(const Problem& problem, bool held) : tables(problem, held), relaxation(tables) {}
  CostTables tables;
  Relaxation relaxation;
  // All uses of a memory are multiples of its unit, so a remainder is useless.
  std::int64_t hot_unit = 0, memory_unit = 0;
};

struct OpenCase {
  Case which;
  const Variant* variant = nullptr;
  double bound = 0;  // no placement of the case is faster
  bool tried = false;
};

class Solver {
 public:
  explicit Solver(const Problem& problem) : problem_(problem) {}

  Result<Placement> Run();

 private:
  void MakeVariant(bool held);
  void AddCases(const Variant& variant);
  void AddCase(const Variant& variant, int hot_homes, Side head);
  // Returns the case with the least bound; nullptr: none can beat the best.
  OpenCase* Next();
  void Try(OpenCase& open);
  // Computes bounds of all other cases at the prices that were best for one of them.
  void Share(const OpenCase& open, const Prices& prices);
  void FillMemory();
  Status Refuse() const;
  // True if holding deciding rows makes a difference.
  bool FlashCanHold() const {
    const auto& layers = problem_.layers;
    return problem_.machine.flash_reads_per_s > 0 &&
           std::any_of(layers.begin(), layers.end(),
                       [](const LayerShape& l) { return l.reading != Reading::kDense; });
  }
  bool HasHot() const { return problem_.machine.hot.has_value(); }
  bool IsUnified() const { return HasHot() && problem_.machine.unified; }

  const Problem& problem_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::vector<OpenCase> cases_;
  std::optional<Repaired> best_;
  OpenCase best_case_;
  bool shared_ = false;
};

void Solver::MakeVariant(bool held) {
  variants_.push_back(std::make_unique<Variant>(problem_, held));
  Variant& variant = *variants_.back();
  for (const LayerCosts& layer : variant.tables.layers()) {
    for (const std::int64_t n : {layer.neurons[1], layer.neurons.back()}) {
      variant.hot_unit = std::gcd(variant.hot_unit, layer.hot_neuron * n);
      variant.memory_unit = std::gcd(variant.memory_unit, layer.memory_neuron * n);
      variant.memory_unit = std::gcd(variant.memory_unit, layer.end_neuron * n);
    }
  }
  AddCases(variant);
}

void Solver::AddCases(const Variant& variant) {
  const auto layers = base::IntSize(problem_.layers);
  if (IsUnified()) return AddCase(variant, layers, kHot);
  const bool can_be_home = HasHot() && problem_.machine.hot_homes;
  for (int hot_homes = 0; hot_homes <= (can_be_home ? layers : 0); ++hot_homes) {
    AddCase(variant, hot_homes, kCold);
    if (can_be_home && (hot_homes == layers || !problem_.head_with_homes))
      AddCase(variant, hot_homes, kHot);
  }
}

void Solver::AddCase(const Variant& variant, int hot_homes, Side head) {
  const CostTables& tables = variant.tables;
  std::int64_t hot = problem_.machine.hot_bytes - problem_.hot_fixed_bytes,
               memory = problem_.machine.memory_bytes - problem_.memory_fixed_bytes;
  if (IsUnified()) {
    hot = std::min(problem_.machine.hot_bytes, problem_.machine.memory_bytes) -
          problem_.hot_fixed_bytes - problem_.memory_fixed_bytes;
    memory = 0;
  }
  // If the hot side has no memory for its buffers, the case without a hot side remains.
  const bool nothing_hot = hot_homes == 0 && head == kCold;
  if (!HasHot() || (nothing_hot && hot < 0)) hot = 0;
  for (int l = 0; l < base::IntSize(tables.layers()); ++l) {
    const LayerCosts& layer = tables.layers()[l];
    hot -= layer.hot_base;
    memory -= layer.memory_base;
    (l < hot_homes ? hot : memory) -= layer.home_bytes;
  }
  (head == kHot ? hot : memory) -= problem_.head_bytes;
  if (hot < 0) return;
  const auto floor_to = [](std::int64_t room, std::int64_t unit) {
    if (unit == 0) return room;
    const std::int64_t rest = room % unit;
    return room - (rest < 0 ? rest + unit : rest);
  };
  Case which{.hot_homes = hot_homes,
             .head = head,
             .hot_bytes = floor_to(hot, variant.hot_unit),
             .memory_bytes = floor_to(memory, variant.memory_unit),
             .hot_unit = variant.hot_unit,
             .memory_unit = variant.memory_unit,
             .fixed_s = tables.head_s(head) + tables.SwitchTime(hot_homes, head)};
  cases_.push_back(
      {.which = which, .variant = &variant, .bound = variant.relaxation.At(which, {}).value});
}

OpenCase* Solver::Next() {
  OpenCase* next = nullptr;
  for (OpenCase& open : cases_)
    if (!open.tried && (next == nullptr || open.bound < next->bound)) next = &open;
  const double enough = best_.has_value() ? best_->seconds * (1 - kPrecision) : kInfinity;
  return next != nullptr && next->bound < enough ? next : nullptr;
}

void Solver::Try(OpenCase& open) {
  open.tried = true;
  const Variant& variant = *open.variant;
  const double enough = best_.has_value() ? best_->seconds : kInfinity;
  const BestBound bound = variant.relaxation.Best(open.which, enough);
  open.bound = bound.feasible ? std::max(open.bound, bound.value) : kInfinity;
  if (open.bound < kInfinity || !std::exchange(shared_, true)) Share(open, bound.prices);
  if (open.bound >= enough) return;
  const auto found = Repair(variant.tables, variant.relaxation, open.which, bound.prices);
  if (!found.has_value() || found->seconds >= enough) return;
  best_ = found;
  best_case_ = open;
}

void Solver::Share(const OpenCase& open, const Prices& prices) {
  for (OpenCase& other : cases_) {
    if (other.variant != open.variant || other.tried) continue;
    other.bound = std::max(other.bound, other.variant->relaxation.At(other.which, prices).value);
  }
}

Result<Placement> Solver::Run() {
  MakeVariant(true);
  if (FlashCanHold()) MakeVariant(false);
  while (OpenCase* open = Next()) Try(*open);
  if (!best_.has_value()) return Refuse();
  FillMemory();
  const Case& which = best_case_.which;
  Placement out = best_case_.variant->tables.Describe(which.hot_homes, which.head, best_->choices);
  for (const OpenCase& open : cases_)
    out.gap = std::max(out.gap, (best_->seconds - open.bound) / best_->seconds);
  if (out.gap <= kPrecision) out.gap = 0;
  return out;
}

// Neurons that cost no time on flash, because they are never active, are moved to RAM that is left.
void Solver::FillMemory() {
  if (IsUnified()) return;
  const std::vector<LayerCosts>& layers = best_case_.variant->tables.layers();
  std::vector<CostTables::Choice>& choices = best_->choices;
  std::int64_t room = best_case_.which.memory_bytes;
  for (std::size_t l = 0; l < layers.size(); ++l)
    room -= layers[l].MemoryBytes(choices[l].hot, choices[l].end);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto last = base::IntSize(layers[l].neurons) - 1;
    for (int& end = choices[l].end; end < last; ++end) {
      const std::int64_t more = layers[l].MemoryBytes(choices[l].hot, end + 1) -
                                layers[l].MemoryBytes(choices[l].hot, end);
      if (more > room) break;
      room -= more;
    }
  }
}

Status Solver::Refuse() const {
  std::int64_t homes = 0, rows = 0, predictors = 0;
  for (const LayerShape& layer : problem_.layers) {
    homes += layer.home_bytes + layer.kv_bytes;
    rows += layer.row_bytes() * layer.neurons();
    predictors += layer.predictor_bytes * layer.neurons();
  }
  std::string table;
  const auto add = [&](const char* name, std::int64_t bytes) {
    char line[96];
    std::snprintf(line, sizeof(line), "  %-52s %10s\n", name, base::HumanBytes(D(bytes)).c_str());
    table += line;
  };
  const Machine& m = problem_.machine;
  add("attention, norms, keys and values", homes);
  add("output head", problem_.head_bytes);
  add("predictors", predictors);
  add("neurons", rows);
  add("program, embeddings and buffers", problem_.memory_fixed_bytes);
  add("buffers of the hot side, if it is used", problem_.hot_fixed_bytes);
  add("hot memory that there is", HasHot() ? m.hot_bytes : 0);
  add("RAM that there is", m.memory_bytes);
  return base::ResourceExhausted(
      "no placement fits: only neurons may lie on flash, and this machine has ",
      m.flash_reads_per_s > 0 ? "not enough memory for the rest" : "no flash",
      ". What is needed:\n", table, IsUnified() ? "(hot memory and RAM are one) " : "",
      "Give more memory, a shorter context or a smaller model",
      m.flash_reads_per_s > 0 ? "" : ", or flash");
}

}  // namespace

Result<Placement> Solve(const Problem& problem) {
  RETURN_IF_ERROR(Validate(problem));
  return Solver(problem).Run();
}

}  // namespace thermocline::placement
