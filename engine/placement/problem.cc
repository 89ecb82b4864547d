#include "engine/placement/problem.h"

#include <cmath>

#include "engine/base/index.h"

namespace thermocline::placement {
namespace {

constexpr std::int64_t kBytesMax = std::int64_t{1} << 56;  // sums of a few thousand fit 63 bits
constexpr std::int64_t kNeuronBytesMax = std::int64_t{1} << 36;

Status CheckSize(const std::string& where, const char* field, std::int64_t bytes,
                 std::int64_t bytes_max) {
  if (bytes >= 0 && bytes <= bytes_max) return OkStatus();
  return base::InvalidArgument(where, field, " is ", bytes, "; it must be from 0 to ", bytes_max);
}

Status CheckFrequencies(const std::string& where, const std::vector<double>& frequency) {
  if (frequency.empty()) return base::InvalidArgument(where, "there are no neurons");
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const double f = frequency[i];
    if (!(f >= 0 && f <= 1))
      return base::InvalidArgument(where, "the frequency of rank ", i, " is ", f,
                                   "; it must be a share of the tokens, from 0 to 1");
    if (i > 0 && f > frequency[i - 1])
      return base::InvalidArgument(where, "the frequencies rise at rank ", i,
                                   "; sort the most frequent first");
  }
  return OkStatus();
}

Status CheckLayer(int index, const LayerShape& layer) {
  const std::string where = StrCat("layer ", index, ": ");
  RETURN_IF_ERROR(CheckSize(where, "home_bytes", layer.home_bytes, kBytesMax));
  RETURN_IF_ERROR(CheckSize(where, "kv_bytes", layer.kv_bytes, kBytesMax));
  RETURN_IF_ERROR(CheckSize(where, "deciding_bytes", layer.deciding_bytes, kNeuronBytesMax));
  RETURN_IF_ERROR(CheckSize(where, "rest_bytes", layer.rest_bytes, kNeuronBytesMax));
  RETURN_IF_ERROR(CheckSize(where, "predictor_bytes", layer.predictor_bytes, kNeuronBytesMax));
  if (!(layer.overprediction >= 1 && std::isfinite(layer.overprediction)))
    return base::InvalidArgument(where, "overprediction is ", layer.overprediction,
                                 "; it must be finite and at least 1");
  return CheckFrequencies(where, layer.frequency);
}

Status CheckProcessor(const char* side, const Processor& p) {
  const double rates[] = {p.dense_bytes_per_s, p.rows_bytes_per_s, p.predictor_bytes_per_s};
  for (const double rate : rates) {
    if (!(rate > 0 && std::isfinite(rate)))
      return base::InvalidArgument("machine: a rate of the ", side, " side is ", rate,
                                   " bytes/s; it must be above 0");
  }
  if (!(p.row_s >= 0 && p.layer_s >= 0 && std::isfinite(p.row_s + p.layer_s)))
    return base::InvalidArgument("machine: row_s ", p.row_s, " or layer_s ", p.layer_s, " of the ",
                                 side, " side is below 0 or no number");
  return OkStatus();
}

Status CheckMachine(const Machine& m) {
  RETURN_IF_ERROR(CheckProcessor("cold", m.cold));
  if (m.hot.has_value()) RETURN_IF_ERROR(CheckProcessor("hot", *m.hot));
  RETURN_IF_ERROR(CheckSize("machine: ", "hot_bytes", m.hot_bytes, INT64_MAX));
  RETURN_IF_ERROR(CheckSize("machine: ", "memory_bytes", m.memory_bytes, INT64_MAX));
  if (!(m.sync_s >= 0 && std::isfinite(m.sync_s)))
    return base::InvalidArgument("machine: sync_s is ", m.sync_s);
  if (m.hot.has_value() && !m.unified && !(m.link_bytes_per_s > 0))
    return base::InvalidArgument("machine: link_bytes_per_s is ", m.link_bytes_per_s,
                                 "; with a hot side it must be above 0");
  const bool flash = m.flash_reads_per_s > 0 && m.flash_bytes_per_s > 0;
  if (!flash && !(m.flash_reads_per_s == 0 && m.flash_bytes_per_s == 0))
    return base::InvalidArgument("machine: flash gives ", m.flash_reads_per_s, " reads/s and ",
                                 m.flash_bytes_per_s, " bytes/s; both above 0, or both 0");
  return OkStatus();
}

}  // namespace

std::int64_t Problem::neurons() const {
  std::int64_t sum = 0;
  for (const LayerShape& layer : layers) sum += layer.neurons();
  return sum;
}

Status Validate(const Problem& problem) {
  RETURN_IF_ERROR(CheckMachine(problem.machine));
  if (problem.layers.empty()) return base::InvalidArgument("the model has no layers");
  if (problem.batch < 1)
    return base::InvalidArgument("a batch of ", problem.batch, " neurons; it must be at least 1");
  RETURN_IF_ERROR(CheckSize("", "head_bytes", problem.head_bytes, kBytesMax));
  RETURN_IF_ERROR(CheckSize("", "sync_bytes", problem.sync_bytes, kBytesMax));
  RETURN_IF_ERROR(CheckSize("", "hot_fixed_bytes", problem.hot_fixed_bytes, kBytesMax));
  RETURN_IF_ERROR(CheckSize("", "memory_fixed_bytes", problem.memory_fixed_bytes, kBytesMax));
  for (int i = 0; i < base::IntSize(problem.layers); ++i)
    RETURN_IF_ERROR(CheckLayer(i, problem.layers[i]));
  return OkStatus();
}

}  // namespace thermocline::placement
