// The real engine with the Tidepool pair: every way of drafting gives plain decoding's text.
#include <gtest/gtest.h>

#include "engine/base/log.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

namespace thermocline {
namespace {

EngineConfig Config(const SpecOptions& spec) {
  base::ConfigureLog(base::LogLevel::kError, false);
  EngineConfig config;
  config.model = "tidepool";
  config.threads = 2;
  config.spec = spec;
  return config;
}

SpecOptions Pair(const std::string& mode) {
  SpecOptions spec;
  spec.mode = mode;
  spec.draft = "tidepool-draft";
  return spec;
}

std::unique_ptr<Engine> Load(const EngineConfig& config) {
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

struct Answer {
  std::vector<int> tokens;
  std::string text;
  FinishReason reason;
  Usage usage;
};

Answer Ask(Engine& engine, const Request& request) {
  const auto channel = engine.Submit(request);
  EXPECT_TRUE(channel.ok()) << channel.status().message();
  Answer out{};
  TokenChannel::Update update;
  while (!update.finished) {
    (*channel)->WaitAndTake(update);
    out.tokens.insert(out.tokens.end(), update.tokens.begin(), update.tokens.end());
    out.text += update.text;
  }
  out.reason = update.reason;
  out.usage = update.usage;
  return out;
}

// Stories, chats and noise.
std::vector<Request> Requests() {
  std::vector<Request> out;
  std::uint32_t noise = 12345;
  for (int i = 0; i < 12; ++i) {
    Request request;
    request.sampling.temperature = 0;
    request.max_tokens = 40 + 5 * i;
    request.prompt = {1};
    for (int j = 0; j < 3 * i; ++j) {
      noise = noise * 1664525 + 1013904223;
      request.prompt.push_back(static_cast<int>(300 + (noise >> 12) % 1700));
    }
    request.ignore_eos = i % 3 == 0;
    if (i % 4 == 1) request.stop = {" the", "."};
    if (i % 2 == 1) {
      request.sampling.temperature = 0.7 + 0.1 * i;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.top_p = i % 3 == 0 ? 1.0 : 0.9;
      request.sampling.top_k = i % 5 == 0 ? 20 : 0;
      request.sampling.repetition_penalty = i % 7 == 0 ? 1.2 : 1.0;
      request.sampling.frequency_penalty = i % 3 == 1 ? 0.5 : 0;
      request.sampling.logit_bias = {{310, -100.0F}, {400 + i, 3.0F}};
    }
    out.push_back(request);
  }
  out.back().max_tokens = 0;  // to the context's end
  out.back().ignore_eos = true;
  return out;
}

void ExpectPlainText(Engine& engine, const std::string& mode, int tokens) {
  for (const Request& request : Requests()) {
    Request plain = request, drafted = request;
    plain.spec_mode = "off";
    drafted.spec_mode = mode;
    drafted.spec_tokens = tokens;
    const Answer expected = Ask(engine, plain), got = Ask(engine, drafted);
    EXPECT_EQ(got.tokens, expected.tokens) << mode << " " << tokens;
    EXPECT_EQ(got.text, expected.text);
    EXPECT_EQ(got.reason, expected.reason);
    EXPECT_EQ(got.usage.completion_tokens, expected.usage.completion_tokens);
  }
}

TEST(Speculation, EveryModeGivesPlainText) {
  const auto engine = Load(Config(Pair("auto")));
  for (const char* mode : {"sync", "branch", "exhaustive", "auto"}) {
    for (const int tokens : {1, 3, 8, 15}) ExpectPlainText(*engine, mode, tokens);
  }
  const SpecStats stats = engine->Stats().spec;
  EXPECT_GT(stats.accepted_tokens, stats.drafts);
  std::printf("%lld drafts, %lld of %lld tokens accepted\n", static_cast<long long>(stats.drafts),
              static_cast<long long>(stats.accepted_tokens),
              static_cast<long long>(stats.draft_tokens));
}

TEST(Speculation, DraftsFromTheTextGivePlainText) {
  SpecOptions spec;
  spec.mode = "sync";
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, "sync", 8);
  ExpectPlainText(*engine, "auto", 15);
}

TEST(Speculation, TheTargetDraftsForItself) {
  SpecOptions spec;
  spec.mode = "sync";
  spec.source = "self";
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, "sync", 4);
}

}  // namespace
}  // namespace thermocline
