// `thermocline plan`: plans the placement of a model's neurons on a machine and predicts the time
// per token; or replays a trace through caches (plan_replay.h).
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "engine/api/ffn_mode.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/output_file.h"
#include "engine/base/ratio.h"
#include "engine/load/this_machine.h"
#include "engine/model/expert_rows.h"
#include "engine/model/fingerprint.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/placement/build_problem.h"
#include "engine/placement/placement_file.h"
#include "engine/placement/solver.h"
#include "engine/predictor/identity.h"
#include "engine/predictor/side_car.h"
#include "tools/common/console.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/plan/plan_draft.h"
#include "tools/plan/plan_machine.h"
#include "tools/plan/plan_replay.h"
#include "tools/plan/plan_report.h"

namespace thermocline::tools {
namespace {

using placement::Reading;

struct Options {
  std::string model, modes = "auto", side_car, out, plot;
  MachineOptions machine;
  ReplayOptions replay;
  PlanDraftOptions draft;
  int context_length = 4096, batch = 64;
  double active = 0, zipf = -1;
  bool json = false;
};

Reading ReadingOf(FfnMode mode) {
  if (mode == FfnMode::kDense) return Reading::kDense;
  return mode == FfnMode::kSign || mode == FfnMode::kLowRank ? Reading::kPredicted
                                                             : Reading::kExact;
}

Result<std::vector<Reading>> Readings(const model::ModelFile& file, const std::string& text) {
  const int layers = file.config.num_hidden_layers;
  if (file.config.experts.any()) {
    if (text == "auto" || text == "dense") return std::vector(layers, Reading::kChosen);
    return base::InvalidArgument("--ffn-mode ", text,
                                 ": the experts that a router chooses are "
                                 "computed whole");
  }
  const bool zeros = file.config.HasZeros();
  const FfnMode otherwise = zeros ? FfnMode::kExact : FfnMode::kDense;
  ASSIGN_OR_RETURN(const FfnModes modes, ParseFfnModes(text, layers, otherwise));
  std::vector<Reading> out;
  for (int l = 0; l < layers; ++l) {
    FfnMode mode = modes.automatic ? otherwise : modes.layers[l];
    if (mode == FfnMode::kExact && !file.config.HasZeros(l)) mode = FfnMode::kDense;
    if (!zeros && mode != FfnMode::kDense && mode != FfnMode::kThreshold)
      return base::InvalidArgument(
          "--ffn-mode ", text, ": the activation ", model::ActivationName(file.config.hidden_act),
          " has no true zeros: only dense and threshold skip nothing that counts");
    out.push_back(ReadingOf(mode));
  }
  return out;
}

// Counts of a profile if the side-car has them; with --active or --zipf they are assumed instead.
Result<std::optional<predictor::SideCar>> ReadCounts(const Options& o,
                                                     const model::ModelFile& file) {
  const bool assume = o.active > 0 || o.zipf >= 0;
  const std::string path = o.side_car.empty() ? predictor::SideCarPath(file.path) : o.side_car;
  if (assume && !o.side_car.empty())
    return base::InvalidArgument(
        "--side-car has counts; --active and --zipf are for models without");
  if (assume || (o.side_car.empty() && !base::PathExists(path)))
    return std::optional<predictor::SideCar>();
  ASSIGN_OR_RETURN(const auto identity, predictor::IdentityOf(file));
  ASSIGN_OR_RETURN(predictor::SideCar side_car, predictor::ReadSideCar(path, identity));
  for (const predictor::LayerSideCar& layer : side_car.layers) {
    if (!layer.activations.empty()) continue;
    if (o.side_car.empty()) return std::optional<predictor::SideCar>();
    return base::FailedPrecondition(path,
                                    ": no activation counts; `thermocline profile` makes them");
  }
  return std::optional(std::move(side_car));
}

std::string Digest(const predictor::SideCar& side_car) {
  base::Hasher hasher;
  for (const predictor::LayerSideCar& layer : side_car.layers)
    hasher.Add(std::as_bytes(std::span(layer.activations)));
  return hasher.Digest().Hex();
}

struct Frequencies {
  std::optional<predictor::SideCar> counts;
  std::string text, profile;
};

Result<Frequencies> FindFrequencies(const Options& o, const model::ModelFile& file,
                                    placement::BuildOptions& build) {
  Frequencies out;
  ASSIGN_OR_RETURN(out.counts, ReadCounts(o, file));
  const model::ExpertConfig& experts = file.config.experts;
  if (experts.any()) build.active = base::Ratio(experts.num_experts_per_tok, experts.num_experts);
  if (o.active > 0) build.active = o.active;
  if (o.zipf >= 0) build.zipf = o.zipf;
  if (!out.counts.has_value()) {
    out.text = StrCat("frequencies assumed: ", 100 * build.active, "% active, Zipf exponent ",
                      build.zipf, " (no counts of `profile`)");
    out.profile = StrCat("assumed ", build.active, " ", build.zipf);
    return out;
  }
  build.profiled_tokens = out.counts->profiled_tokens;
  for (const predictor::LayerSideCar& layer : out.counts->layers)
    build.activations.push_back(layer.activations);
  out.text = StrCat("frequencies of ", build.profiled_tokens, " profiled tokens");
  out.profile = Digest(*out.counts);
  return out;
}

Status WriteOut(const Options& o, const std::string& hash, const Frequencies& frequencies,
                const placement::Machine& machine, const placement::Placement& placement) {
  if (!frequencies.counts.has_value())
    return base::FailedPrecondition(
        "--out ", o.out, ": without counts no neuron is known to be hot; run `thermocline profile ",
        o.model, "` first");
  std::vector<std::vector<std::int32_t>> order;
  for (const predictor::LayerSideCar& layer : frequencies.counts->layers)
    order.push_back(placement::ByFrequency(layer.activations));
  return placement::WritePlacement(o.out, {.model_hash = hash,
                                           .machine_key = machine.key,
                                           .profile = frequencies.profile,
                                           .hot_bytes = machine.hot_bytes,
                                           .memory_bytes = machine.memory_bytes,
                                           .head_hot = placement.head_hot,
                                           .layers = TiersOf(placement, order)});
}

bool IsPlacement(const base::File& file) {
  const auto text = base::ReadFileToString(file.path(), std::size_t{64} << 20);
  const auto json = text.ok() ? base::ParseJson(*text) : Result<Json>(text.status());
  return json.ok() && json->is_object() && json->Find("machine_key") != nullptr &&
         json->Find("layers") != nullptr;
}

Status PlanPlacement(const Options& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  if (!o.out.empty() && o.out == o.plot)
    return base::InvalidArgument("--out and --plot name the same file");
  if (!o.out.empty())
    RETURN_IF_ERROR(base::CheckReplaceable(o.out, {"a placement", IsPlacement}).Annotate("--out"));
  ASSIGN_OR_RETURN(const std::string path, model::ResolveModel(o.model));
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(path));
  if (!file->has_weights)
    return base::InvalidArgument(path, ": the file holds a vocabulary, but no weights");
  ASSIGN_OR_RETURN(const std::string hash, model::Fingerprint(*file));
  ASSIGN_OR_RETURN(placement::Machine machine, FindMachine(o.machine, *file, hash));
  if (file->config.experts.any()) load::ScaleToExperts(machine);
  if (model::HasExpertRows(*file)) {  // they stay in memory, on the CPU
    machine.hot.reset();
    machine.flash_reads_per_s = machine.flash_bytes_per_s = 0;
  }
  placement::BuildOptions build;
  build.context_length = o.context_length;
  build.batch = o.batch;
  ASSIGN_OR_RETURN(build.readings, Readings(*file, o.modes));
  ASSIGN_OR_RETURN(const Frequencies frequencies, FindFrequencies(o, *file, build));
  ASSIGN_OR_RETURN(const placement::Problem problem, BuildProblem(*file, machine, build));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const placement::Placement placement, Solve(problem));
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  ASSIGN_OR_RETURN(const std::vector<offline::WhatIf> what_ifs, offline::SolveWhatIfs(problem));
  const PlanReport report{.model = path,
                          .frequencies = frequencies.text,
                          .mode = o.modes,
                          .context_length = o.context_length,
                          .problem = problem,
                          .placement = placement,
                          .what_ifs = what_ifs,
                          .solve_ms = ms.count()};
  if (!o.out.empty() && machine.key.empty())
    base::LogWarning("the machine is not this one: what --out writes is to look at, not to run");
  if (!o.out.empty()) RETURN_IF_ERROR(WriteOut(o, hash, frequencies, machine, placement));
  if (!o.plot.empty()) {
    ASSIGN_OR_RETURN(const auto svg, base::FileWriter::Create(o.plot));
    RETURN_IF_ERROR(svg->Append(PlanSvg(report)));
    RETURN_IF_ERROR(svg->Commit());
  }
  o.json ? PrintJson(PlanJson(report)) : PrintPlan(report);
  return OkStatus();
}

Status Plan(const Options& o) {
  if (!o.model.empty() + !o.replay.trace.empty() + o.draft.draft != 1)
    return base::InvalidArgument(
        "give MODEL, to place its neurons, or --replay TRACE, recorded with --record-trace of "
        "`run` or `profile`, or --draft");
  if (o.draft.draft) {
    PlanDraftOptions draft = o.draft;
    draft.plot = o.plot;
    draft.json = o.json;
    return PlanDraft(draft);
  }
  if (!o.model.empty()) return PlanPlacement(o);
  ReplayOptions replay = o.replay;
  replay.plot = o.plot;
  replay.json = o.json;
  return PlanReplay(replay);
}

}  // namespace

Command AddPlan(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  set.Add("model", o->model, "Model file, folder or built-in name");
  AddMachineOptions(set, o->machine);
  set.Add("--ffn-mode", o->modes,
          "Neurons to compute: auto (exact where there are true zeros, else dense), a mode, "
          "or modes by layer (0-3:dense,4-:sign)")
      .ShowDefault();
  set.Add("--context", IntValue{&o->context_length, 1, 1 << 24},
          "Tokens of keys and values that are held and read")
      .ShowDefault();
  set.Add("--batch", IntValue{&o->batch, 1, 1 << 20}, "Neurons that are placed together")
      .ShowDefault();
  set.Add("--active", DoubleValue{&o->active, 1e-6, 1},
          "Assume this share of neurons active for a token (0.1)");
  set.Add("--zipf", DoubleValue{&o->zipf, 0, 5},
          "Assume this exponent of frequencies over rank (0.8)");
  set.Add("--side-car", o->side_car, "Side-car with the counts of `profile`; else MODEL.tcp");
  set.Add("--out", o->out, "Write the placement to this file");
  AddReplayOptions(set, o->replay);
  AddPlanDraftOptions(set, o->draft);
  set.Add("--plot", o->plot, "Write a picture to this SVG file");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Plan(*o); };
}

}  // namespace thermocline::tools
