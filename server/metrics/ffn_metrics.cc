#include "server/metrics/ffn_metrics.h"

#include <algorithm>

namespace thermocline::server {
namespace {

void ExposeRows(const std::string& layer, const FfnLayerStats& s, MetricSet& set) {
  for (const std::string_view name : kFfnModeNames)
    set.Set("ffn_mode", name == FfnModeName(s.mode) ? 1 : 0,
            {{"layer", layer}, {"mode", std::string(name)}});
  set.CatchUp("ffn_tokens_total", s.tokens, {{"layer", layer}});
  set.Set("ffn_neurons", static_cast<double>(s.neurons), {{"layer", layer}});
  set.CatchUp("ffn_steps_total", s.steps, {{"layer", layer}});
  set.CatchUp("ffn_rows_read_total", s.gate_rows, {{"layer", layer}, {"part", "gate"}});
  set.CatchUp("ffn_rows_read_total", s.up_rows, {{"layer", layer}, {"part", "up"}});
  set.CatchUp("ffn_rows_read_total", s.down_rows, {{"layer", layer}, {"part", "down"}});
  set.CatchUp("ffn_bytes_read_total", s.bytes, {{"layer", layer}});
  set.CatchUp("ffn_dense_bytes_total", s.dense_bytes, {{"layer", layer}});
  set.CatchUp("ffn_bytes_saved_total", s.dense_bytes - s.bytes, {{"layer", layer}});
}

void ExposeWindow(const std::string& layer, const char* mode, const RecentAudits& recent,
                  MetricSet& set) {
  if (recent.tokens == 0) return;
  const MetricSet::Labels labels = {{"layer", layer}, {"mode", mode}};
  set.Set("predictor_window_tokens", recent.tokens, labels);
  set.Set("predictor_precision", recent.precision, labels);
  set.Set("predictor_recall", recent.recall, labels);
  set.Set("predictor_missed_mass_ratio", recent.missed_share, labels);
}

void ExposeAudits(const std::string& layer, const FfnLayerStats& s, MetricSet& set) {
  set.CatchUp("ffn_predictor_bytes_read_total", s.predictor_bytes, {{"layer", layer}});
  set.CatchUp("predictor_audited_tokens_total", s.audited_tokens, {{"layer", layer}});
  const auto count = [&](const char* outcome, std::int64_t neurons) {
    set.CatchUp("predictor_neurons_total", neurons, {{"layer", layer}, {"outcome", outcome}});
  };
  count("tp", s.tp);
  count("fp", s.fp);
  count("fn", s.fn);
  count("tn", s.tn);
  set.CatchUp("predictor_missed_mass_total", s.missed_mass, {{"layer", layer}});
  set.CatchUp("predictor_mass_total", s.total_mass, {{"layer", layer}});
}

void ExposeRecent(const std::string& layer, const FfnLayerStats& s, MetricSet& set) {
  ExposeWindow(layer, "sign", s.recent_sign[0], set);
  ExposeWindow(layer, "shadow_sign", s.recent_sign[1], set);
  ExposeWindow(layer, "lowrank", s.recent_low_rank[0], set);
  ExposeWindow(layer, "shadow_lowrank", s.recent_low_rank[1], set);
  if (s.audit_s > 0) set.CatchUp("predictor_audit_seconds_total", s.audit_s, {{"layer", layer}});
}

void ExposeInputs(const std::string& layer, const FfnLayerStats& s, MetricSet& set) {
  for (std::size_t kind = 0; kind < s.inputs.size(); ++kind) {
    const InputStats& inputs = s.inputs[kind];
    if (inputs.tokens == 0) continue;
    const std::string matrix(kInputStatNames[kind]);
    const MetricSet::Labels labels = {{"layer", layer}, {"matrix", matrix}};
    set.CatchUp("inputs_tokens_total", inputs.tokens, labels);
    set.CatchUp("inputs_missed_mass_total", inputs.missed, labels);
    const auto count = [&](const char* outcome, std::int64_t number) {
      set.CatchUp("inputs_total", number,
                  {{"layer", layer}, {"matrix", matrix}, {"outcome", outcome}});
    };
    count("kept", inputs.kept);
    count("cut", inputs.all - inputs.kept);
  }
}

void ExposeController(const std::string& layer, const FfnLayerStats& s, MetricSet& set) {
  set.Set("controller_shift", s.shift, {{"layer", layer}});
  set.Set("controller_recall", s.recall, {{"layer", layer}});
  set.CatchUp("controller_moves_total", s.moves, {{"layer", layer}});
}

// The layers' bytes are counted for all tiers together, the hot tier's work in neurons.
void ExposeTiers(const EngineStats& stats, MetricSet& set) {
  double all = 0, gpu = 0;
  for (const FfnLayerStats& layer : stats.ffn) all += static_cast<double>(layer.bytes);
  const HotStats& hot = stats.hot;
  if (hot.used && hot.device != "cpu" && hot.neurons > 0)
    gpu = static_cast<double>(hot.active_hot) * static_cast<double>(hot.bytes) /
          static_cast<double>(hot.neurons);
  set.CatchUp("ffn_tier_bytes_total", std::max(0.0, all - gpu), {{"tier", "ram"}});
  set.CatchUp("ffn_tier_bytes_total", gpu, {{"tier", "gpu"}});
  set.CatchUp("ffn_tier_bytes_total", stats.flash.counters.bytes, {{"tier", "flash"}});
}

}  // namespace

void ExposeFfn(const EngineStats& stats, MetricSet& set) {
  for (std::size_t l = 0; l < stats.ffn.size(); ++l) {
    const FfnLayerStats& s = stats.ffn[l];
    const std::string layer = StrCat(l);
    const bool predicts = s.mode == FfnMode::kSign || s.mode == FfnMode::kLowRank;
    ExposeRows(layer, s, set);
    if (predicts || s.predictor_bytes > 0) ExposeAudits(layer, s, set);
    ExposeRecent(layer, s, set);
    ExposeInputs(layer, s, set);
    if (s.controlled) ExposeController(layer, s, set);
  }
  ExposeTiers(stats, set);
  set.Set("controller_frozen", !stats.ffn.empty() && stats.ffn[0].frozen ? 1 : 0);
}

}  // namespace thermocline::server
