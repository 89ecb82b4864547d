#include "server/metrics/energy_history.h"

#include <algorithm>

namespace thermocline::server {
namespace {

constexpr std::chrono::minutes kKept{15};

// The sum over rails whose names start with `begins`; with `whole_only`, names with a further part
// are skipped.
std::optional<double> SumOf(const SensorReadings& readings, std::string_view begins,
                            bool whole_only) {
  std::optional<double> sum;
  for (const SensorReadings::Rail& rail : readings.rails) {
    const std::string_view name = rail.name;
    if (!name.starts_with(begins) || !rail.joules.has_value()) continue;
    if (whole_only && name.find('/', begins.size()) != name.npos) continue;
    sum = sum.value_or(0) + *rail.joules;
  }
  return sum;
}

}  // namespace

std::optional<double> MachineJoules(const SensorReadings& readings) {
  if (const auto module = SumOf(readings, "VDD_IN", true)) return module;
  if (auto rails = SumOf(readings, "VDD", true)) {
    return *rails + SumOf(readings, "VIN_", true).value_or(0);
  }
  return SumOf(readings, "rapl/package-", true);
}

void EnergyHistory::Add(Clock::time_point at, double joules) {
  points_.push_back({at, joules});
  while (points_.size() > 2 && points_[1].at + kKept < at) points_.pop_front();
}

double EnergyHistory::At(Clock::time_point time) const {
  const auto after = std::find_if(points_.begin() + 1, points_.end() - 1,
                                  [time](const Point& point) { return point.at >= time; });
  const Point &a = *(after - 1), &b = *after;
  const double share = std::chrono::duration<double>(time - a.at) / (b.at - a.at);
  return a.joules + share * (b.joules - a.joules);
}

std::optional<double> EnergyHistory::Between(Clock::time_point begin, Clock::time_point end) const {
  if (points_.size() < 2 || begin < points_.front().at || end < begin) return std::nullopt;
  return std::max(0.0, At(end) - At(begin));
}

}  // namespace thermocline::server
