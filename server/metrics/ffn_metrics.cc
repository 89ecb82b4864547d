#include "server/metrics/ffn_metrics.h"

#include "server/metrics/catch_up.h"

namespace thermocline::server {
namespace {

prometheus::Family<prometheus::Counter>& MakeCounters(prometheus::Registry& registry,
                                                      const std::string& name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Gauge>& MakeGauges(prometheus::Registry& registry,
                                                  const std::string& name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

FfnMetrics::FfnMetrics(prometheus::Registry& r, const std::string& p)
    : mode_(MakeGauges(r, p + "ffn_mode", "1 for the mode of a layer's last decoded token")),
      tokens_(MakeCounters(r, p + "ffn_tokens_total", "Tokens decoded by a layer")),
      rows_(MakeCounters(r, p + "ffn_rows_read_total",
                         "Rows of feed-forward weights that decoding read, by matrix")),
      bytes_(
          MakeCounters(r, p + "ffn_bytes_read_total",
                       "Bytes that decoding read for a feed-forward network, predictors included")),
      saved_(
          MakeCounters(r, p + "ffn_bytes_saved_total",
                       "Bytes that decoding densely would have read besides; 0 while a predictor "
                       "costs more than it saves")),
      predictor_bytes_(MakeCounters(r, p + "ffn_predictor_bytes_read_total",
                                    "Bytes of predictors that decoding read")),
      audited_(MakeCounters(r, p + "predictor_audited_tokens_total",
                            "Decoded tokens whose prediction was checked")),
      neurons_(
          MakeCounters(r, p + "predictor_neurons_total",
                       "Neurons of audited tokens; the positive class is ACTIVE: tp active and "
                       "predicted, fp predicted but not active (bytes for nothing), fn active but "
                       "missed (quality lost), tn neither")),
      missed_mass_(MakeCounters(r, p + "predictor_missed_mass_total",
                                "Contribution |h| ||d|| of the active neurons that were missed")),
      mass_(MakeCounters(r, p + "predictor_mass_total",
                         "Contribution |h| ||d|| of all active neurons of audited tokens")),
      shift_(MakeGauges(
          r, p + "controller_shift",
          "What the controller adds to the predictor's threshold, in units of its score; "
          "higher reads less and misses more")),
      recall_(MakeGauges(r, p + "controller_recall",
                         "Mean recall of audited tokens since the controller's last move")),
      moves_(MakeCounters(r, p + "controller_moves_total", "Moves of the predictor's threshold")),
      frozen_(MakeGauges(r, p + "controller_frozen",
                         "1 while the thresholds are held where they are (/admin/predictors)")
                  .Add({})) {}

void FfnMetrics::Expose(const EngineStats& stats) {
  for (std::size_t l = 0; l < stats.ffn.size(); ++l) {
    const FfnLayerStats& s = stats.ffn[l];
    const std::string layer = StrCat(l);
    const bool predicts = s.mode == FfnMode::kSign || s.mode == FfnMode::kLowRank;
    ExposeRows(layer, s);
    if (predicts || s.predictor_bytes > 0) ExposeAudits(layer, s);
    if (s.controlled) ExposeController(layer, s);
  }
  frozen_.Set(!stats.ffn.empty() && stats.ffn[0].frozen ? 1 : 0);
}

void FfnMetrics::ExposeRows(const std::string& layer, const FfnLayerStats& s) {
  for (const std::string_view name : kFfnModeNames) {
    mode_.Add({{"layer", layer}, {"mode", std::string(name)}})
        .Set(name == FfnModeName(s.mode) ? 1 : 0);
  }
  CatchUp(tokens_.Add({{"layer", layer}}), s.tokens);
  CatchUp(rows_.Add({{"layer", layer}, {"part", "gate"}}), s.gate_rows);
  CatchUp(rows_.Add({{"layer", layer}, {"part", "up"}}), s.up_rows);
  CatchUp(rows_.Add({{"layer", layer}, {"part", "down"}}), s.down_rows);
  CatchUp(bytes_.Add({{"layer", layer}}), s.bytes);
  CatchUp(saved_.Add({{"layer", layer}}), s.dense_bytes - s.bytes);
}

void FfnMetrics::ExposeAudits(const std::string& layer, const FfnLayerStats& s) {
  CatchUp(predictor_bytes_.Add({{"layer", layer}}), s.predictor_bytes);
  CatchUp(audited_.Add({{"layer", layer}}), s.audited_tokens);
  CatchUp(neurons_.Add({{"layer", layer}, {"outcome", "tp"}}), s.tp);
  CatchUp(neurons_.Add({{"layer", layer}, {"outcome", "fp"}}), s.fp);
  CatchUp(neurons_.Add({{"layer", layer}, {"outcome", "fn"}}), s.fn);
  CatchUp(neurons_.Add({{"layer", layer}, {"outcome", "tn"}}), s.tn);
  CatchUp(missed_mass_.Add({{"layer", layer}}), s.missed_mass);
  CatchUp(mass_.Add({{"layer", layer}}), s.total_mass);
}

void FfnMetrics::ExposeController(const std::string& layer, const FfnLayerStats& s) {
  shift_.Add({{"layer", layer}}).Set(s.shift);
  recall_.Add({{"layer", layer}}).Set(s.recall);
  CatchUp(moves_.Add({{"layer", layer}}), s.moves);
}

}  // namespace thermocline::server
