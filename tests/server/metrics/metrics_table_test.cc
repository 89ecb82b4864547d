// The table of metrics: names that Prometheus and its linter accept, and the page of documentation.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "engine/base/file.h"
#include "server/metrics/metric_set.h"
#include "server/metrics/metric_tables.h"
#include "server/metrics/metrics.h"
#include "server/metrics/table.h"

namespace thermocline::server {
namespace {

TEST(MetricTable, NamesFollowTheConventions) {
  std::set<std::string> names;
  for (const MetricInfo& info : MetricTable()) {
    const std::string name = info.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos)
        << name;
    EXPECT_EQ(name.ends_with("_total"), info.type == MetricType::kCounter) << name;
    EXPECT_EQ(info.ladder != Ladder::kNone, info.type == MetricType::kHistogram) << name;
    EXPECT_FALSE(std::string_view(info.help).empty() || std::string_view(info.unit).empty())
        << name;
    for (const std::string unit : {"seconds", "bytes", "watts", "joules", "hertz"}) {
      if (unit != info.unit) continue;
      EXPECT_NE(("_" + name + "_").find("_" + unit + "_"), std::string::npos)
          << name << " does not say its unit";
    }
  }
}

TEST(MetricTable, ThePageHasIt) {
  const auto page = base::ReadFileToString(SOURCE_DIR "/docs/metrics.md");
  ASSERT_TRUE(page.ok());
  EXPECT_NE(page->find("-->\n" + MetricTables() + "<!--"), std::string::npos)
      << "python3 docs/make_metrics.py build/release/bin/thermoclined";
}

TEST(MetricTable, LaddersAscendAndCanBeReplaced) {
  for (const Ladder ladder : {Ladder::kFirstToken, Ladder::kInterToken, Ladder::kRequest,
                              Ladder::kTokens, Ladder::kTokenize, Ladder::kStep, Ladder::kBatch}) {
    const auto borders = BordersOf(ladder, {});
    EXPECT_FALSE(borders.empty());
    EXPECT_TRUE(std::is_sorted(borders.begin(), borders.end()));
  }
  EXPECT_EQ(BordersOf(Ladder::kInterToken, {}).front(), 0.001);
  EXPECT_EQ(BordersOf(Ladder::kInterToken, {.inter_token = {1, 2}}), (std::vector<double>{1, 2}));
  Metrics metrics("t_", {.inter_token = {0.25}});
  metrics.InterToken(0.2);
  const std::string text = metrics.Expose(ServiceState::kLoading, nullptr, "m");
  EXPECT_NE(text.find("t_inter_token_latency_seconds_bucket{le=\"0.25\"} 1\n"), std::string::npos);
  EXPECT_EQ(text.find("t_inter_token_latency_seconds_bucket{le=\"0.001\"}"), std::string::npos);
}

TEST(MetricSet, CountersNeverGoBack) {
  MetricSet set("t_", {});
  set.CatchUp("preemptions_total", 5);
  set.CatchUp("preemptions_total", 3);
  EXPECT_NE(MetricText(set.Collect()).find("\nt_preemptions_total 5\n"), std::string::npos);
  set.CatchUp("preemptions_total", 6);
  EXPECT_NE(MetricText(set.Collect()).find("\nt_preemptions_total 6\n"), std::string::npos);
}

TEST(MetricSet, AClientReadsSumsOverWhatOtherClientsChose) {
  MetricSet set("t_", {});
  set.Count("request_fields_ignored_total", {{"api", "/a"}, {"field", "mine"}}, 2);
  set.Count("request_fields_ignored_total", {{"api", "/a"}, {"field", "yours"}}, 3);
  set.Count("request_fields_ignored_total", {{"api", "/b"}, {"field", "yours"}});
  set.Count("requests_failed_total", {{"reason", "data"}});
  const std::string all = MetricText(set.Collect()),
                    part = MetricText(set.Collect(MetricReader::kClient));
  const std::string name = "\nt_request_fields_ignored_total{api=";
  EXPECT_NE(all.find(name + "\"/a\",field=\"mine\"} 2\n"), std::string::npos);
  EXPECT_NE(part.find(name + "\"/a\",field=\"other\"} 5\n"), std::string::npos);
  EXPECT_NE(part.find(name + "\"/b\",field=\"other\"} 1\n"), std::string::npos);
  EXPECT_EQ(part.find("mine"), std::string::npos);
  EXPECT_EQ(part.find("yours"), std::string::npos);
  EXPECT_NE(part.find("\nt_requests_failed_total{reason=\"data\"} 1\n"), std::string::npos);
}

TEST(MetricSet, LabelsAreEscapedAndHaveNoControlCharacters) {
  MetricSet set("t_", {});
  set.Count("requests_failed_total", {{"reason", "a\\b\"c\nd\x1b[31m\r\t\x7f\u00e9"}});
  EXPECT_NE(MetricText(set.Collect()).find("{reason=\"a\\\\b\\\"c\\nd?[31m???\u00e9\"} 1\n"),
            std::string::npos)
      << MetricText(set.Collect());
}

TEST(MetricSet, AHistogramIsBroughtToWhatItsOwnerCounts) {
  MetricSet set("t_", {});
  StepStats steps;
  const auto show = [&] {
    set.CatchUp("engine_step_seconds", steps.decode.counts, steps.decode.sum,
                {{"phase", "decode"}});
    return MetricText(set.Collect());
  };
  const auto bucket = [](const char* le, int count) {
    return StrCat("\nt_engine_step_seconds_bucket{phase=\"decode\",le=\"", le, "\"} ", count, "\n");
  };
  const auto has = [](const std::string& text, const std::string& line) {
    return text.find(line) != std::string::npos;
  };
  EXPECT_TRUE(has(show(), "\nt_engine_step_seconds_count{phase=\"decode\"} 0\n"));
  steps.decode.counts.front() = 2;
  steps.decode.counts[3] = 3;
  steps.decode.counts.back() = 1;
  steps.decode.sum = 12.5;
  const std::string text = show();
  EXPECT_TRUE(has(text, bucket("0.0001", 2)) && has(text, bucket("0.0005", 2)));
  EXPECT_TRUE(has(text, bucket("0.001", 5)) && has(text, bucket("10", 5)));
  EXPECT_TRUE(has(text, bucket("+Inf", 6)));
  EXPECT_TRUE(has(text, "\nt_engine_step_seconds_count{phase=\"decode\"} 6\n"));
  EXPECT_TRUE(has(text, "\nt_engine_step_seconds_sum{phase=\"decode\"} 12.5\n"));
  EXPECT_EQ(show(), text);
  ++steps.decode.counts[3];
  steps.decode.sum = 13;
  const std::string later = show();
  EXPECT_TRUE(has(later, bucket("0.0005", 2)) && has(later, bucket("0.001", 6)));
  EXPECT_TRUE(has(later, "\nt_engine_step_seconds_sum{phase=\"decode\"} 13\n"));
}

TEST(MetricSet, ASeriesCanGo) {
  MetricSet set("t_", {});
  set.Remove("power_watts", {{"rail", "a"}});
  set.Set("power_watts", 1, {{"rail", "a"}});
  set.Set("power_watts", 2, {{"rail", "b"}});
  set.Remove("power_watts", {{"rail", "a"}});
  const std::string text = MetricText(set.Collect());
  EXPECT_EQ(text.find("rail=\"a\""), std::string::npos);
  EXPECT_NE(text.find("\nt_power_watts{rail=\"b\"} 2\n"), std::string::npos);
}

TEST(MetricSet, AnInfoHasOneSeries) {
  MetricSet set("t_", {});
  set.SetInfo("device_info", {{"device", "a"}, {"fallback", ""}});
  set.SetInfo("device_info", {{"device", "b"}, {"fallback", ""}});
  const std::string text = MetricText(set.Collect());
  EXPECT_EQ(text.find("device=\"a\""), std::string::npos);
  EXPECT_NE(text.find("device=\"b\""), std::string::npos);
}

TEST(MetricSetDeathTest, WhatIsNotInTheTableIsNotRegistered) {
  MetricSet set("t_", {});
  EXPECT_DEATH(set.Count("no_such_total"), "CHECK failed");
  EXPECT_DEATH(set.Count("state", {{"state", "ready"}}), "CHECK failed");      // a gauge
  EXPECT_DEATH(set.Count("requests_total", {{"api", "/"}}), "CHECK failed");   // a label is missing
  EXPECT_DEATH(set.Count("preemptions_total", {{"a", "b"}}), "CHECK failed");  // an extra label
}

// A daemon that uses every part exposes the whole table, except the machine's sensors
// (sensors_test.cc).
TEST(Metrics, EverythingInTheTableCanBeExposed) {
  Metrics metrics("t_");
  metrics.RequestEnded("/metrics", 200);
  metrics.RequestRejected("queue_full");
  metrics.FieldIgnored("/v1/messages", "a");
  metrics.AccessLoosened();
  metrics.ToolCalls("json", 1);
  metrics.TokensReplayed(5);
  metrics.PrefixBroken("history");
  metrics.Reasoned(7, true);
  metrics.ToolCallRejected("R4");
  metrics.RequestCancelled(Phase::kDecode, CancelCause::kApi, 0.001);
  metrics.RequestFailed("device");
  metrics.RequestFinished(FinishReason::kStop, {.prompt_tokens = 3, .completion_tokens = 2}, 0.1);
  metrics.Tokenized(0.001);
  EngineStats stats;
  stats.kv_bytes = 1;
  FfnLayerStats layer;
  layer.mode = FfnMode::kSign;
  layer.controlled = true;
  layer.recent_sign[0].tokens = 1;
  layer.audit_s = 1;
  layer.inputs[0] = {.tokens = 1, .kept = 1, .all = 2, .missed = 0.25};
  stats.ffn.push_back(layer);
  stats.flash.used = stats.hot.used = stats.spec.used = stats.prefix_flash.used = true;
  stats.experts = {.experts = 40, .used = 2, .uses = std::vector<std::int64_t>(80, 1)};
  const std::string text = metrics.Expose(ServiceState::kReady, &stats, "m");
  for (const MetricInfo& info : MetricTable()) {
    const std::string name = FullMetricName(info, "t_");
    if (info.when == MetricWhen::kSensors) continue;
    EXPECT_NE(text.find("# HELP " + name + " "), std::string::npos) << name;
  }
}

TEST(Metrics, ExpertsAreToldInRanges) {
  Metrics metrics("t_");
  EngineStats stats;
  stats.experts = {.experts = 40, .used = 2, .uses = std::vector<std::int64_t>(40, 1)};
  stats.experts.uses[39] = 61;  // of 100
  stats.experts.guessed = 10;
  stats.experts.guessed_right = 7;
  stats.hot = {.used = true, .device = "cpu", .active_hot = 30};
  const std::string text = metrics.Expose(ServiceState::kReady, &stats, "m");
  for (const char* line : {
           "expert_uses_total{experts=\"0-2\",layer=\"0\"} 3",
           "expert_uses_total{experts=\"39-39\",layer=\"0\"} 61",
           "expert_hottest_share{hottest=\"0.1\",layer=\"0\"} 0.64",
           "router_load_max{layer=\"0\"} 24.4",
           "experts_unused{layer=\"0\"} 0",
           "expert_tier_uses_total{tier=\"hot\"} 30",
           "expert_tier_uses_total{tier=\"ram\"} 70",
           "expert_guesses_total{outcome=\"wrong\"} 3",
       })
    EXPECT_NE(text.find(std::string("\nt_") + line + "\n"), std::string::npos) << line;
}

TEST(Metrics, AScrapeChangesNothingThatAnotherSees) {
  Metrics metrics("t_");
  EngineStats stats;
  stats.heartbeat = 7;
  stats.preemptions = 2;
  stats.steps.verify.counts[2] = 5;
  stats.steps.tokens.counts[1] = 5;
  const auto scrape = [&] {
    std::string out;
    std::istringstream text(metrics.Expose(ServiceState::kReady, &stats, "m"));
    for (std::string line; std::getline(text, line);)
      if (line.find("process_") == std::string::npos) out += line + "\n";
    return out;
  };
  const std::string first = scrape();
  EXPECT_EQ(scrape(), first);
  EXPECT_NE(first.find("\nt_preemptions_total 2\n"), std::string::npos);
  EXPECT_NE(first.find("\nt_engine_step_seconds_count{phase=\"verify\"} 5\n"), std::string::npos);
  EXPECT_NE(first.find("\nt_engine_batch_size_bucket{le=\"2\"} 5\n"), std::string::npos);
}

TEST(Metrics, MemoryIsToldByWhereItLies) {
  const auto expose = [](const char* device) {
    Metrics metrics("t_");
    EngineStats stats;
    stats.weight_bytes = 1000;
    stats.hot = {.used = true, .device = device, .bytes = 300};
    return metrics.Expose(ServiceState::kReady, &stats, "m");
  };
  const std::string weights = "\nt_memory_bytes{device=\"cpu\",kind=\"weights\"} 1000\n";
  const std::string text = expose("GPU 1");
  EXPECT_NE(text.find(weights), std::string::npos);
  EXPECT_NE(text.find("\nt_memory_bytes{device=\"GPU 1\",kind=\"weights\"} 300\n"),
            std::string::npos);
  EXPECT_NE(expose("cpu").find(weights), std::string::npos);  // a second partition of the CPU
}

}  // namespace
}  // namespace thermocline::server
