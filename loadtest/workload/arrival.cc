#include "loadtest/workload/arrival.h"

#include <algorithm>
#include <cmath>

#include "loadtest/workload/json_lines.h"

namespace thermocline::loadtest {
namespace {

class Gamma : public ArrivalProcess {
 public:
  Gamma(double rate, double shape, std::uint64_t seed)
      : scale_(1 / (rate * shape)), shape_(shape), random_(seed, kStream) {}
  std::optional<double> Next() override {
    time_ += shape_ == 1 ? random_.Exponential(scale_) : random_.Gamma(shape_) * scale_;
    return time_;
  }

 private:
  static constexpr std::uint64_t kStream = 0xA221;  // different from every request's
  const double scale_, shape_;
  double time_ = 0;
  Random random_;
};

class Constant : public ArrivalProcess {
 public:
  explicit Constant(double rate) : rate_(rate) {}
  std::optional<double> Next() override { return static_cast<double>(count_++) / rate_; }

 private:
  const double rate_;
  std::uint64_t count_ = 0;
};

class Listed : public ArrivalProcess {
 public:
  explicit Listed(std::vector<double> times) : times_(std::move(times)) {}
  std::optional<double> Next() override {
    return next_ < times_.size() ? std::optional(times_[next_++]) : std::nullopt;
  }

 private:
  const std::vector<double> times_;
  std::size_t next_ = 0;
};

std::optional<double> NumberOf(const Json& json, std::string_view key) {
  const Json* found = json.Find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  const double value = found->as_double();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// The first of the two members that exists, as a count of tokens; 0 without either.
int TokensOf(const Json& json, std::string_view name, std::string_view other) {
  const double tokens = NumberOf(json, name).value_or(NumberOf(json, other).value_or(0));
  return static_cast<int>(std::clamp(tokens, 0.0, 1e7));
}

}  // namespace

std::unique_ptr<ArrivalProcess> GammaArrivals(double rate, double shape, std::uint64_t seed) {
  return std::make_unique<Gamma>(rate, shape, seed);
}
std::unique_ptr<ArrivalProcess> ConstantArrivals(double rate) {
  return std::make_unique<Constant>(rate);
}
std::unique_ptr<ArrivalProcess> ArrivalsAt(std::vector<double> times) {
  return std::make_unique<Listed>(std::move(times));
}

Result<std::vector<TraceEntry>> ReadTrace(const std::string& path, double speed) {
  std::vector<TraceEntry> entries;
  const auto read = [&](const Json& json) -> Status {
    TraceEntry entry;
    if (const auto seconds = NumberOf(json, "t")) {
      entry.time = *seconds;
    } else if (const auto ms = NumberOf(json, "timestamp")) {
      entry.time = *ms / 1000;
    } else {
      return base::InvalidArgument("it has neither \"t\" (seconds) nor \"timestamp\" (ms)");
    }
    entry.prompt_tokens = TokensOf(json, "prompt_tokens", "input_length");
    entry.max_tokens = TokensOf(json, "max_tokens", "output_length");
    entries.push_back(entry);
    return OkStatus();
  };
  RETURN_IF_ERROR(ReadJsonLines(path, read));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TraceEntry& a, const TraceEntry& b) { return a.time < b.time; });
  const double begin = entries.front().time;
  for (TraceEntry& entry : entries) entry.time = (entry.time - begin) / speed;
  return entries;
}

}  // namespace thermocline::loadtest
