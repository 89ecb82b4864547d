// The metrics of the table, registered: counted, set and observed by their names.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "server/metrics/table.h"

namespace thermocline::server {

// A name must be in the table with the type of the call, labels must be the table's: CHECKed.
// Thread-safe, but for CatchUp, Remove and SetInfo of one metric.
class MetricSet {
 public:
  using Labels = prometheus::Labels;

  MetricSet(const std::string& prefix, const MetricBuckets& buckets);

  void Count(std::string_view counter, const Labels& labels = {}, double by = 1);
  // Brings a counter to what its owner counts. A total that falls waits: counters never go back.
  template <typename Number>
  void CatchUp(std::string_view counter, Number total, const Labels& labels = {}) {
    CatchUpTo(counter, static_cast<double>(total), labels);
  }
  // The same for a histogram that its owner counts: by bucket (those below not included) with the
  // one above the last border, and the sum of what was counted.
  void CatchUp(std::string_view histogram, std::span<const std::int64_t> buckets, double sum,
               const Labels& labels = {});
  template <typename Number>
  void Set(std::string_view gauge, Number value, const Labels& labels = {}) {
    SetTo(gauge, static_cast<double>(value), labels);
  }
  // The series, if it is there.
  void Remove(std::string_view gauge, const Labels& labels);
  // Sets a gauge that is always 1: there is one series, with the labels of the last call.
  void SetInfo(std::string_view gauge, const Labels& labels);
  // To be kept by those who observe often.
  prometheus::Histogram& HistogramOf(std::string_view name, const Labels& labels = {}) const;

  // The text exposition. Control characters of labels are '?'.
  std::string Serialize(MetricReader reader = MetricReader::kOperator) const;

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

  prometheus::Registry registry_;
  std::map<std::string_view, Metric> metrics_;  // by name; only info_series changes
};

}  // namespace thermocline::server
