#include "server/metrics/metric_set.h"

#include <prometheus/text_serializer.h>

#include <algorithm>

#include "engine/base/check.h"

namespace thermocline::server {
namespace {

// The counts of single layers tell which of some texts another client has sent.
constexpr std::string_view kLayerLabel = "layer";

bool HasLabel(const prometheus::MetricFamily& family, std::string_view name) {
  return !family.metric.empty() &&
         std::any_of(family.metric[0].label.begin(), family.metric[0].label.end(),
                     [name](const auto& label) { return label.name == name; });
}

// Sums the series of a counter that differ only in the label `hidden`.
void HideLabel(std::string_view hidden, std::vector<prometheus::ClientMetric>& all) {
  std::map<std::vector<prometheus::ClientMetric::Label>, double> sums;
  for (prometheus::ClientMetric& series : all) {
    for (auto& label : series.label)
      if (label.name == hidden) label.value = kOtherLabelValue;
    sums[series.label] += series.counter.value;
  }
  all.clear();
  for (const auto& [labels, sum] : sums) {
    all.emplace_back().label = labels;
    all.back().counter.value = sum;
  }
}

bool IsControl(unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; }

}  // namespace

std::string MetricText(const std::vector<prometheus::MetricFamily>& families) {
  std::string text = prometheus::TextSerializer().Serialize(families);
  std::replace_if(text.begin(), text.end(), IsControl, '?');  // newlines are escaped
  return text;
}

MetricSet::MetricSet(const std::string& prefix, const MetricBuckets& buckets) {
  for (const MetricInfo& info : MetricTable()) {
    const std::string name = FullMetricName(info, prefix);
    const bool from_start =
        info.when == MetricWhen::kAlways && std::string_view(info.labels).empty();
    Metric metric{.info = &info};
    if (info.type == MetricType::kCounter) {
      metric.counters = &prometheus::BuildCounter().Name(name).Help(info.help).Register(registry_);
      if (from_start) metric.counters->Add({});
    } else if (info.type == MetricType::kGauge) {
      metric.gauges = &prometheus::BuildGauge().Name(name).Help(info.help).Register(registry_);
      if (from_start) metric.gauges->Add({});
    } else {
      metric.histograms =
          &prometheus::BuildHistogram().Name(name).Help(info.help).Register(registry_);
      metric.borders = BordersOf(info.ladder, buckets);
      if (from_start) metric.histograms->Add({}, metric.borders);
    }
    CHECK(metrics_.emplace(info.name, metric).second);
  }
}

void MetricSet::Count(std::string_view counter, const Labels& labels, double by) {
  Find(counter, MetricType::kCounter, labels).counters->Add(labels).Increment(by);
}

void MetricSet::CatchUpTo(std::string_view counter, double total, const Labels& labels) {
  prometheus::Counter& series = Find(counter, MetricType::kCounter, labels).counters->Add(labels);
  series.Increment(std::max(0.0, total - series.Value()));
}

void MetricSet::CatchUp(std::string_view histogram, std::span<const std::int64_t> buckets,
                        double sum, const Labels& labels) {
  prometheus::Histogram& series = HistogramOf(histogram, labels);
  const auto shown = series.Collect().histogram;
  CHECK_EQ(buckets.size(), shown.bucket.size());
  std::vector<double> grown(buckets.size());
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const std::int64_t known = shown.bucket[i].cumulative_count - below;
    grown[i] = static_cast<double>(std::max<std::int64_t>(0, buckets[i] - known));
    below = shown.bucket[i].cumulative_count;
  }
  series.ObserveMultiple(grown, std::max(0.0, sum - shown.sample_sum));
}

void MetricSet::Remove(std::string_view gauge, const Labels& labels) {
  auto& series = *Find(gauge, MetricType::kGauge, labels).gauges;
  if (series.Has(labels)) series.Remove(&series.Add(labels));
}

void MetricSet::SetTo(std::string_view gauge, double value, const Labels& labels) {
  Find(gauge, MetricType::kGauge, labels).gauges->Add(labels).Set(value);
}

void MetricSet::SetInfo(std::string_view gauge, const Labels& labels) {
  Metric& metric = metrics_.at(Find(gauge, MetricType::kGauge, labels).info->name);
  prometheus::Gauge& series = metric.gauges->Add(labels);
  if (metric.info_series != nullptr && metric.info_series != &series)
    metric.gauges->Remove(metric.info_series);
  metric.info_series = &series;
  series.Set(1);
}

prometheus::Histogram& MetricSet::HistogramOf(std::string_view name, const Labels& labels) const {
  const Metric& metric = Find(name, MetricType::kHistogram, labels);
  return metric.histograms->Add(labels, metric.borders);
}

void MetricSet::ForgetEngine() {
  using W = MetricWhen;
  for (auto& [name, metric] : metrics_) {
    const W when = metric.info->when;
    if (when != W::kAlways && when != W::kUsed && when != W::kSensors) Clear(metric);
  }
}

void MetricSet::Clear(Metric& metric) {
  const auto clear = [](auto* series, const auto& add) {
    if (series == nullptr) return;
    for (const prometheus::MetricFamily& family : series->Collect())
      for (const prometheus::ClientMetric& each : family.metric) {
        Labels labels;
        for (const auto& label : each.label) labels.emplace(label.name, label.value);
        series->Remove(&add(labels));
      }
  };
  clear(
      metric.counters, [&](const Labels& labels) -> auto& { return metric.counters->Add(labels); });
  clear(
      metric.gauges, [&](const Labels& labels) -> auto& { return metric.gauges->Add(labels); });
  clear(
      metric.histograms, [&](const Labels& labels) -> auto& {
        return metric.histograms->Add(labels, metric.borders);
      });
  metric.info_series = nullptr;
}

std::vector<prometheus::MetricFamily> MetricSet::Collect(MetricReader reader) const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  if (reader == MetricReader::kClient)
    std::erase_if(families, [](const auto& family) { return HasLabel(family, kLayerLabel); });
  for (const auto& [name, metric] : metrics_) {
    const std::string_view label = metric.info->client_label;
    if (label.empty() || reader == MetricReader::kOperator) continue;
    for (prometheus::MetricFamily& family : families)
      if (family.name == metric.counters->GetName()) HideLabel(label, family.metric);
  }
  return families;
}

const MetricSet::Metric& MetricSet::Find(std::string_view name, MetricType type,
                                         const Labels& labels) const {
  const auto found = metrics_.find(name);
  CHECK(found != metrics_.end());
  const MetricInfo& info = *found->second.info;
  CHECK(info.type == type);
  const std::string_view documented = info.labels;
  CHECK_EQ(labels.size(), documented.empty()
                              ? 0u
                              : 1u + static_cast<std::size_t>(
                                         std::count(documented.begin(), documented.end(), ',')));
  for (const auto& [label, value] : labels)
    CHECK((", " + std::string(documented) + ",").find(", " + label + ",") != std::string::npos);
  return found->second;
}

}  // namespace thermocline::server
