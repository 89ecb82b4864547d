#include "tools/eval/predictor_report.h"

#include <cstdio>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/charts/chart.h"

namespace thermocline::tools {
namespace {

bool Predicted(const PredictorReport::Layer& layer) { return layer.counts.tokens > 0; }

// Bytes of a layer's network for one token: gate rows of the predicted neurons, up and down rows of
// the active ones among them, and the predictor.
double BytesOf(const load::LoadedModel& model, std::size_t l, FfnMode mode,
               const predictor::AuditCounts& c) {
  const model::LayerWeights& w = model.weights->layers[l];
  const predictor::LayerPredictors& p = model.predictors->layers[l];
  const auto row = [](const kernels::PackedMatrix& m) {
    return m.rows == 0 ? 0.0 : static_cast<double>(kernels::RowBytes(m.type, m.cols));
  };
  const bool gated = w.gate.linear.weight.rows > 0;
  const double down =
      w.down_rows.rows > 0
          ? static_cast<double>(kernels::RowBytes(w.down_rows.type, w.down_rows.cols))
          : 0;
  const double tokens = static_cast<double>(c.tokens);
  return static_cast<double>(c.tp + c.fp) / tokens *
             row(predictor::DecidingMatrix(w).linear.weight) +
         static_cast<double>(c.tp) / tokens * ((gated ? row(w.up.linear.weight) : 0) + down) +
         static_cast<double>(w.down.weight.bytes()) +
         static_cast<double>(mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
}

}  // namespace

predictor::AuditCounts PredictorReport::total() const {
  predictor::AuditCounts sum;
  for (const Layer& layer : layers) sum += layer.counts;
  return sum;
}

PredictorReport MakeReport(const load::LoadedModel& model, const ffn::Auditor& auditor,
                           const ffn::SparseFfn& ffn) {
  PredictorReport report;
  std::vector<double> bytes(kSweep.size());
  std::vector<predictor::AuditCounts> swept(kSweep.size());
  double dense = 0;
  for (int l = 0; l < model.config.num_hidden_layers; ++l) {
    const FfnMode mode = ffn.policy(l).mode;
    PredictorReport::Layer layer{mode, auditor.total(l), 0};
    if (Predicted(layer)) {
      const std::size_t at = l;
      const double all = static_cast<double>(ffn.dense_bytes(l));
      layer.bytes_saved_share = 1 - BytesOf(model, at, mode, layer.counts) / all;
      dense += all;
      for (std::size_t i = 0; i < kSweep.size(); ++i) {
        bytes[i] += BytesOf(model, at, mode, auditor.swept(l, i));
        swept[i] += auditor.swept(l, i);
      }
    }
    report.layers.push_back(layer);
  }
  for (std::size_t i = 0; i < kSweep.size() && dense > 0; ++i)
    report.sweep.push_back({bytes[i] / dense, swept[i].missed_share()});
  return report;
}

Json::Array LayersJson(const PredictorReport& report) {
  Json::Array out;
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    const PredictorReport::Layer& layer = report.layers[l];
    const predictor::AuditCounts& c = layer.counts;
    out.push_back(Json::Object{{"layer", l},
                               {"mode", std::string(FfnModeName(layer.mode))},
                               {"tp", c.tp},
                               {"fp", c.fp},
                               {"fn", c.fn},
                               {"tn", c.tn},
                               {"recall", c.recall()},
                               {"precision", c.precision()},
                               {"missed_mass", c.missed_share()},
                               {"active_share", c.active_share()},
                               {"predicted_share", c.predicted_share()},
                               {"bytes_saved_share", layer.bytes_saved_share}});
  }
  return out;
}

void PrintReport(const PredictorReport& report) {
  std::printf(
      "\nactive is the positive class\nlayer  mode       recall  precision  predicts   active"
      "  missed mass  bytes saved\n");
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    const PredictorReport::Layer& layer = report.layers[l];
    const predictor::AuditCounts& c = layer.counts;
    if (!Predicted(layer)) {
      std::printf("%5zu  %-9s  predicts nothing\n", l, FfnModeName(layer.mode).data());
      continue;
    }
    std::printf(
        "%5zu  %-9s  %5.1f%%     %5.1f%%     %5.1f%%   %5.1f%%       %6.2f%%        %5.1f%%\n", l,
        FfnModeName(layer.mode).data(), 100 * c.recall(), 100 * c.precision(),
        100 * c.predicted_share(), 100 * c.active_share(), 100 * c.missed_share(),
        100 * layer.bytes_saved_share);
  }
}

Status WriteReportPlot(const std::string& path, const PredictorReport& report) {
  using Kind = charts::Series::Kind;
  const auto colors = charts::Colors(3);
  charts::Series recall{.kind = Kind::kBars, .label = "recall", .color = colors[0]},
      precision{.kind = Kind::kBars, .label = "precision", .color = colors[2]},
      curve{.kind = Kind::kLine, .label = "other thresholds", .color = colors[1]},
      here{.kind = Kind::kPoints, .label = "as it is", .color = colors[0]};
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    if (!Predicted(report.layers[l])) continue;
    recall.points.emplace_back(l, report.layers[l].counts.recall());
    precision.points.emplace_back(l, report.layers[l].counts.precision());
  }
  for (std::size_t i = 0; i < report.sweep.size(); ++i) {
    curve.points.emplace_back(report.sweep[i].bytes_share, report.sweep[i].missed_mass);
    if (kSweep[i] == 0) here.points.push_back(curve.points.back());
  }
  charts::Chart by_layer{.title = "Prediction by layer; the positive class is active"};
  by_layer.x = {
      .label = "layer", .whole = true, .min = -0.5, .max = base::IntSize(report.layers) - 0.5};
  by_layer.y = {.label = "share", .percent = true, .min = 0, .max = 1};
  by_layer.series = {recall, precision};
  charts::Chart trade{.title = "Bytes read against mass missed"};
  trade.x = {.label = "feed-forward bytes read, of the dense network's", .percent = true};
  trade.y = {.label = "missed |h| ||d||", .percent = true};
  trade.series = {curve, here};
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{by_layer, trade}, 2)));
  return file->Commit();
}

}  // namespace thermocline::tools
