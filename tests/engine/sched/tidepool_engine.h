// An engine with the model Tidepool, and requests to it, shared by the scheduler's tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/engine.h"

namespace thermocline {

using Channel = std::shared_ptr<TokenChannel>;

inline EngineConfig Tidepool() {
  EngineConfig config;
  config.model.path = SOURCE_DIR "/config/models/tidepool.gguf";
  config.model.threads = 2;
  config.serving.quantum_tokens = 8;
  return config;
}

inline std::unique_ptr<Engine> Load(const EngineConfig& config) {
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

inline Request Story(std::uint64_t seed, int max_tokens) {
  Request request;
  request.prompt = {1, static_cast<int>(300 + seed % 700), 500};
  request.sampling.seed = seed;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

inline TokenChannel::Update End(TokenChannel& channel) {
  TokenChannel::Update update, all;
  while (!all.finished) {
    channel.WaitForUpdate(update);
    all.text += update.text;
    all.tokens.insert(all.tokens.end(), update.tokens.begin(), update.tokens.end());
    all.times.insert(all.times.end(), update.times.begin(), update.times.end());
    all.scores.insert(all.scores.end(), update.scores.begin(), update.scores.end());
    if (!update.prompt_scores.empty()) all.prompt_scores = update.prompt_scores;
    all.finished = update.finished;
    all.reason = update.reason;
    all.error = update.error;
    all.usage = update.usage;
  }
  return all;
}

template <typename Holds>
bool Eventually(Holds holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;  // not asked again, since the condition may change
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return holds();
}

// Submits `request`; `then` is called on the decode thread after its first token, before any other
// step.
inline Channel SubmitAndThen(Engine& engine, Request request, const std::function<void()>& then) {
  auto first = std::make_shared<std::atomic<bool>>(true);
  return *engine.Submit(std::move(request), [first, then] {
    if (first->exchange(false)) then();
  });
}

}  // namespace thermocline
