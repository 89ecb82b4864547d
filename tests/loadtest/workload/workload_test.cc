#include "loadtest/workload/workload.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "loadtest/client/url.h"
#include "loadtest/run/sweep.h"

namespace thermocline::loadtest {
namespace {

TEST(WorkloadTest, PromptsDependOnTheSeedAndTheNumberAloneAndBeginDifferently) {
  const WorkloadOptions options{.seed = 5};
  const auto a = MakeWorkload(options), b = MakeWorkload(options);
  std::set<std::string> heads;
  b->Next(3);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    const std::string text = a->Next(id).messages[0].content;
    EXPECT_EQ(text, b->Next(id).messages[0].content);
    heads.insert(text.substr(0, 40));
  }
  EXPECT_EQ(heads.size(), 1000u);
  EXPECT_NE(a->Next(0).messages[0].content, MakeWorkload({.seed = 6})->Next(0).messages[0].content);
}

TEST(WorkloadTest, AShareIsOdd) {
  for (const auto& [kind, odd] : {std::pair{WorkloadKind::kLongBesideShort, "long"},
                                  std::pair{WorkloadKind::kCancelStorm, "leaving"},
                                  std::pair{WorkloadKind::kSlowReaders, "slow"},
                                  std::pair{WorkloadKind::kMalformed, "malformed"}}) {
    const auto workload = MakeWorkload({.kind = kind, .share = 0.25});
    std::map<std::string, int> kinds;
    for (std::uint64_t id = 0; id < 4000; ++id) ++kinds[workload->Next(id).kind];
    EXPECT_EQ(kinds.size(), 2u);
    EXPECT_NEAR(kinds[odd], 1000, 120) << odd;
  }
}

TEST(WorkloadTest, ClientsLeaveAtEveryPhase) {
  const auto workload = MakeWorkload(
      {.kind = WorkloadKind::kCancelStorm, .max_tokens = {.low = 8, .high = 8}, .share = 1});
  std::set<int> phases;
  for (std::uint64_t id = 0; id < 1000; ++id)
    phases.insert(workload->Next(id).leave_after_chunks.value_or(-1));
  EXPECT_EQ(phases, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(WorkloadTest, ATurnRepeatsWhatWasSaid) {
  const auto workload = MakeWorkload({.kind = WorkloadKind::kMultiTurn, .turns = 3});
  const Request first = workload->Next(0);
  ASSERT_EQ(first.messages.size(), 2u);
  EXPECT_EQ(first.messages[0].role, "system");
  EXPECT_EQ(first.messages[0].content, workload->Next(1).messages[0].content);
  Answer answer;
  answer.conversation = 0;
  answer.outcome = Outcome::kOk;
  answer.text = "Once upon a time";
  const auto second = workload->After(answer, 2);
  ASSERT_TRUE(second.has_value());
  ASSERT_EQ(second->request.messages.size(), 4u);
  EXPECT_EQ(second->request.messages[1].content, first.messages[1].content);
  EXPECT_EQ(second->request.messages[2].content, answer.text);
  EXPECT_EQ(second->request.turn, 1);
  EXPECT_TRUE(workload->After(answer, 3).has_value());
  EXPECT_FALSE(workload->After(answer, 4).has_value());  // three turns
  answer.conversation = 1;
  answer.outcome = Outcome::kError;
  EXPECT_FALSE(workload->After(answer, 5).has_value());
}

TEST(WorkloadTest, WordsMakeThePromptsTokens) {
  Random random(1);
  const TokenScale scale{.tokens_per_word = 2, .overhead_tokens = 10, .measured = true};
  const std::string text = RandomPrompt(random, 110, scale);
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 49);
  EXPECT_FALSE(RandomPrompt(random, 1, scale).empty());
}

TEST(WorkloadTest, ADataSetIsRead) {
  const std::string path = testing::TempDir() + "dataset.jsonl";
  std::ofstream(path)
      << "\"Hello\"\n{\"prompt\": \"One\", \"max_tokens\": 5}\n{\"question\": "
         "\"Two\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"Three\"}]}\n";
  const auto dataset = ReadDataset(path);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  const auto workload = MakeWorkload({.dataset = *dataset});
  for (const auto& [id, text] : {std::pair{0, "Hello"}, {1, "One"}, {2, "Two"}, {3, "Three"}})
    EXPECT_EQ(workload->Next(static_cast<std::uint64_t>(id)).messages[0].content, text);
  EXPECT_EQ(workload->Next(1).max_tokens, 5);
  const std::string again = workload->Next(4).messages[0].content;
  EXPECT_NE(again, "Hello");
  EXPECT_TRUE(again.ends_with("Hello"));
  std::ofstream(path) << "{\"x\": 1}\n";
  EXPECT_FALSE(ReadDataset(path).ok());
}

TEST(SweepTest, LoadsDoubleUntilTwoStepsGainNothing) {
  SweepPlan plan({}, 1);
  std::vector<double> loads;
  for (const double gain : {10.0, 19.0, 30.0, 30.5, 28.0, 99.0}) {
    const auto load = plan.Next();
    if (!load.has_value()) break;
    loads.push_back(*load);
    plan.Add(*load, gain);
  }
  EXPECT_EQ(loads, (std::vector<double>{1, 2, 4, 8, 16}));
  EXPECT_EQ(plan.knee(), 3u);
}

TEST(UrlTest, AddressesAreRead) {
  const auto url = ParseUrl("https://example.com/base/v1/");
  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->authority(), "example.com:443");
  EXPECT_EQ(ApiPath(*url, "models"), "/base/v1/models");
  EXPECT_EQ(RootPath(*url, "metrics"), "/base/metrics");
  EXPECT_EQ(ApiPath(*ParseUrl("localhost:8080"), "models"), "/v1/models");
  EXPECT_EQ(ParseUrl("http://[::1]:80")->authority(), "[::1]:80");
  for (const char* text :
       {"", "http://", "ftp://x", "http://x:0", "http://x:99999", "http://x:", "http://[::1",
        "http://a b", "http://u@x", "http://x/?q", "http://x:1x", "http://x/\r\nHost: y"})
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
}

}  // namespace
}  // namespace thermocline::loadtest
