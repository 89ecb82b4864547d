// Turns of the engine: the text must not depend on them, and the order of clients.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "tests/engine/sched/tidepool_engine.h"

namespace thermocline {
namespace {

struct Setting {
  const char* name;
  std::int64_t prefix_cache_bytes;  // beside one context; sets the size of the memory
  SpecMode spec_mode;
  SpecSource source;
  const char* ffn;
};

class Turns : public testing::TestWithParam<Setting> {};

// Each of six requests generates the same text as alone, though they take turns and, with little
// memory, evict each other.
TEST_P(Turns, ChangeNoText) {
  const Setting& setting = GetParam();
  EngineConfig config = Tidepool();
  config.serving.step_tokens = 1;
  config.serving.prefix_cache_bytes = setting.prefix_cache_bytes;
  config.model.spec.mode = setting.spec_mode;
  config.model.spec.source = setting.source;
  if (setting.source == SpecSource::kModel)
    config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
  config.model.ffn.modes = setting.ffn;
  const auto engine = Load(config);
  const auto request = [](std::uint64_t i) {
    Request r = Story(i, 200);
    r.sampling.temperature = i % 2 == 0 ? 0 : 1;
    r.sampling.frequency_penalty = i % 3 == 0 ? 0.5 : 0;
    r.stop = {"zebra crossing"};
    return r;
  };
  std::vector<TokenChannel::Update> alone, together;
  for (std::uint64_t i = 0; i < 6; ++i) alone.push_back(End(**engine->Submit(request(i))));
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Request r = request(i);
    r.tenant = i < 4 ? "a" : "b";
    channels.push_back(*engine->Submit(std::move(r)));
  }
  for (const Channel& channel : channels) together.push_back(End(*channel));
  int preemptions = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
    EXPECT_EQ(together[i].text, alone[i].text) << "request " << i;
    EXPECT_EQ(alone[i].usage.preemptions, 0);
    preemptions += together[i].usage.preemptions;
  }
  EXPECT_GT(preemptions, 20);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.preemptions, preemptions);
  if (setting.prefix_cache_bytes == 0) {
    EXPECT_GT(stats.recomputed_tokens, 0);
  }
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Turns,
    testing::Values(
        Setting{"memory_for_all", 64 << 20, SpecMode::kOff, SpecSource::kNgram, "exact"},
        Setting{"memory_for_one", 0, SpecMode::kOff, SpecSource::kNgram, "exact"},
        Setting{"memory_for_one_with_loss", 0, SpecMode::kOff, SpecSource::kNgram, "sign"},
        Setting{"ngram", -1, SpecMode::kSync, SpecSource::kNgram, "exact"},
        Setting{"draft", -1, SpecMode::kBranch, SpecSource::kModel, "dense"},
        Setting{"draft_and_memory_for_one", 0, SpecMode::kSync, SpecSource::kModel, "exact"},
        Setting{"itself", 0, SpecMode::kSync, SpecSource::kSelf, "exact"},
        Setting{"itself_ahead", -1, SpecMode::kBranch, SpecSource::kSelf, "dense"},
        Setting{"itself_ahead_and_memory_for_one", 0, SpecMode::kBranch, SpecSource::kSelf,
                "exact"}),
    [](const auto& tested) { return tested.param.name; });

// Tokens that three long requests generate between a short one's arrival and its first token.
int TokensBeforeAShortOne(Engine& engine) {
  std::vector<Channel> longs;
  for (std::uint64_t i = 0; i < 3; ++i) longs.push_back(*engine.Submit(Story(i, 400)));
  TokenChannel::Update update;
  for (const Channel& channel : longs) channel->WaitForUpdate(update);
  const auto short_end = End(**engine.Submit(Story(9, 4)));
  const auto first = short_end.times.front();
  int tokens = 0;
  const auto submitted =
      first -
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(short_end.usage.queue_s + short_end.usage.prefill_s));
  bool all_went_on = true;
  for (const Channel& channel : longs) {
    const auto end = End(*channel);
    EXPECT_EQ(end.usage.completion_tokens, 400);
    for (const auto at : end.times) tokens += at > submitted && at < first ? 1 : 0;
    all_went_on &= end.times.back() > first;
  }
  return all_went_on ? tokens : std::numeric_limits<int>::max();
}

TEST(Scheduler, AShortRequestDoesNotWaitForLongOnes) {
  const auto engine = Load(Tidepool());
  // If the system suspends a thread at a bad moment, the others generate more tokens; a scheduler
  // that makes the short one wait does so every time.
  int least = std::numeric_limits<int>::max();
  for (int attempt = 0; attempt < 20 && least > 2 * 8 + 2; ++attempt)
    least = std::min(least, TokensBeforeAShortOne(*engine));
  EXPECT_LE(least, 2 * 8 + 2);
}

std::vector<Channel> FillPlaces(Engine& engine, int count, const std::string& tenant = "") {
  std::vector<Channel> channels;
  for (int i = 0; i < count; ++i) {
    Request request = Story(static_cast<std::uint64_t>(i), 400);
    request.tenant = tenant;
    channels.push_back(*engine.Submit(std::move(request)));
  }
  EXPECT_TRUE(Eventually([&] { return engine.Stats().running == count; }));
  return channels;
}

TEST(Scheduler, PrioritiesGoFirst) {
  const auto engine = Load(Tidepool());
  Request low = Story(2, 5), high = Story(3, 5);
  low.priority = -1;
  high.priority = 1;
  Channel waits, goes;
  std::atomic<bool> submitted{false};
  const Channel running = SubmitAndThen(*engine, Story(1, 100), [&] {
    waits = *engine->Submit(low);
    goes = *engine->Submit(high);
    submitted = true;
  });
  ASSERT_TRUE(Eventually([&] { return submitted.load(); }));
  const auto low_end = End(*waits), high_end = End(*goes), running_end = End(*running);
  EXPECT_LT(high_end.times.back(), running_end.times.back());
  EXPECT_LT(running_end.times.back(), low_end.times.front());
}

TEST(Scheduler, OneClientsRequestsKeepNobodyElseOut) {
  EngineConfig config = Tidepool();
  config.serving.sequences_max = 2;
  const auto engine = Load(config);
  const auto begun = FillPlaces(*engine, 2, "many");
  Request same = Story(7, 400), other = Story(8, 3), high = Story(9, 3);
  same.tenant = high.tenant = "many";
  other.tenant = "one";
  high.priority = 1;
  const Channel waits = *engine->Submit(same);
  const auto other_end = End(**engine->Submit(other)), high_end = End(**engine->Submit(high));
  std::vector<TokenChannel::Update> ends;
  for (const Channel& channel : begun) ends.push_back(End(*channel));
  const auto last = End(*waits).times.front();
  for (const auto& end : ends) {
    EXPECT_LT(other_end.times.back(), end.times.back());
    EXPECT_LT(high_end.times.back(), end.times.back());
  }
  // A request of the same client and priority waited for a place.
  EXPECT_GT(last, std::min(ends[0].times.back(), ends[1].times.back()));
}

}  // namespace
}  // namespace thermocline
