#include "loadtest/measure/memory_watch.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace thermocline::loadtest {
namespace {

constexpr std::size_t kReadingsMax = 4000;

// Parses "VmRSS:     1234 kB" into bytes.
std::optional<double> KibibytesOf(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  const auto value = base::ParseNumber<double>(rest.substr(0, rest.find(' ')));
  return value.has_value() ? std::optional(*value * 1024) : std::nullopt;
}

double BytesOf(const ProcessMemory& memory) { return memory.rss_bytes + memory.swap_bytes; }

}  // namespace

std::optional<ProcessMemory> ParseProcessStatus(std::string_view text) {
  const auto rss = KibibytesOf(text, "VmRSS:");
  if (!rss.has_value()) return std::nullopt;
  return ProcessMemory{.rss_bytes = *rss, .swap_bytes = KibibytesOf(text, "VmSwap:").value_or(0)};
}

Result<ProcessMemory> ReadProcessMemory(int pid) {
  std::ifstream file(StrCat("/proc/", pid, "/status"));
  std::stringstream text;
  text << file.rdbuf();
  const auto memory = ParseProcessStatus(text.str());
  if (!memory.has_value()) return base::NotFound("--pid ", pid, ": there is no such process");
  return *memory;
}

void MemoryWatch::Add(double time, const ProcessMemory& memory) {
  if (!samples_.empty() && time - samples_.back().time < interval_s_) return;
  samples_.push_back({.time = time, .memory = memory});
  if (samples_.size() < kReadingsMax) return;
  for (std::size_t i = 0; i < samples_.size() / 2; ++i) samples_[i] = samples_[2 * i];
  samples_.resize(samples_.size() / 2);
  interval_s_ *= 2;
}

std::optional<double> MemoryWatch::slope_bytes_per_hour() const {
  if (samples_.empty()) return std::nullopt;
  const double begin = samples_.front().time, span = samples_.back().time - begin;
  double count = 0, time_sum = 0, bytes_sum = 0;
  const auto late = [&](const Sample& sample) { return sample.time >= begin + span / 4; };
  for (const Sample& sample : samples_) {
    if (!late(sample)) continue;
    ++count;
    time_sum += sample.time;
    bytes_sum += BytesOf(sample.memory);
  }
  if (count < 4) return std::nullopt;
  const double time_mean = time_sum / count, bytes_mean = bytes_sum / count;
  double both = 0, squares = 0;
  for (const Sample& sample : samples_) {
    if (!late(sample)) continue;
    both += (sample.time - time_mean) * (BytesOf(sample.memory) - bytes_mean);
    squares += (sample.time - time_mean) * (sample.time - time_mean);
  }
  return squares > 0 ? std::optional(both / squares * 3600) : std::nullopt;
}

Json MemoryWatch::ToJson() const {
  if (samples_.empty()) return nullptr;
  double most = 0;
  for (const Sample& sample : samples_) most = std::max(most, BytesOf(sample.memory));
  const auto slope = slope_bytes_per_hour();
  const ProcessMemory &first = samples_.front().memory, &last = samples_.back().memory;
  return Json::Object{{"readings", samples_.size()},
                      {"rss_bytes_first", first.rss_bytes},
                      {"rss_bytes_last", last.rss_bytes},
                      {"swap_bytes_first", first.swap_bytes},
                      {"swap_bytes_last", last.swap_bytes},
                      {"bytes_max", most},
                      {"slope_bytes_per_hour", slope.has_value() ? Json(*slope) : Json()}};
}

}  // namespace thermocline::loadtest
