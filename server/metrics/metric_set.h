// Registers the table's metrics; they are counted, set and observed by name.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "server/metrics/table.h"

namespace thermocline::server {

// CHECKs that a name is in the table with the call's type, and that the labels are the table's.
// Thread-safe, except for CatchUp, Remove and SetInfo of one metric.
class MetricSet {
 public:
  using Labels = prometheus::Labels;

  MetricSet(const std::string& prefix, const MetricBuckets& buckets);

  void Count(std::string_view counter, const Labels& labels = {}, double by = 1);
  // Raises a counter to its owner's total. A total that falls is ignored, since counters never
  // decrease.
  template <typename Number>
  void CatchUp(std::string_view counter, Number total, const Labels& labels = {}) {
    CatchUpTo(counter, static_cast<double>(total), labels);
  }
  // The same for a histogram: its owner's counts per bucket (not cumulative), with the one above
  // the last border, and the sum of the observed values.
  void CatchUp(std::string_view histogram, std::span<const std::int64_t> buckets, double sum,
               const Labels& labels = {});
  template <typename Number>
  void Set(std::string_view gauge, Number value, const Labels& labels = {}) {
    SetTo(gauge, static_cast<double>(value), labels);
  }
  // Removes the series, if it exists.
  void Remove(std::string_view gauge, const Labels& labels);
  // Sets a gauge that is always 1: its one series has the labels of the last call.
  void SetInfo(std::string_view gauge, const Labels& labels);
  // For callers that observe often and keep the reference.
  prometheus::Histogram& HistogramOf(std::string_view name, const Labels& labels = {}) const;

  // Removes the series of all metrics that exist only with a loaded model.
  void ForgetEngine();
  std::vector<prometheus::MetricFamily> Collect(
      MetricReader reader = MetricReader::kOperator) const;

 private:
  struct Metric {
    const MetricInfo* info = nullptr;
    prometheus::Family<prometheus::Counter>* counters = nullptr;
    prometheus::Family<prometheus::Gauge>* gauges = nullptr;
    prometheus::Family<prometheus::Histogram>* histograms = nullptr;
    std::vector<double> borders = {};  // of histograms
    prometheus::Gauge* info_series = nullptr;
  };
  const Metric& Find(std::string_view name, MetricType type, const Labels& labels) const;
  void CatchUpTo(std::string_view counter, double total, const Labels& labels);
  void SetTo(std::string_view gauge, double value, const Labels& labels);

  void Clear(Metric& metric);

  prometheus::Registry registry_;
  std::map<std::string_view, Metric> metrics_;  // by name; only info_series changes
};

// The text exposition. Control characters in labels become '?'.
std::string MetricText(const std::vector<prometheus::MetricFamily>& families);

}  // namespace thermocline::server
