// Requests on a model whose flash device fails or is late.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/log.h"
#include "engine/load/loaded_model.h"
#include "engine/sched/decode_loop.h"
#include "tests/engine/exec/flash_models.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::ffn {
namespace {

using std::chrono::milliseconds;

class FlashRequests : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    exec::PackNeurons(kModel, bundle_);
    load::LoadOptions options;
    options.model.path = kModel;
    options.model.threads = 2;
    options.model.ffn.modes = "exact";
    options.model.memory = {.ffn_share = 0.6, .bundle = bundle_};
    options.open_reader =
        [this](const std::string& path,
               const store::ReaderOptions& reading) -> Result<std::unique_ptr<store::BlockReader>> {
      ASSIGN_OR_RETURN(auto reader, store::OpenBlockReader(path, reading));
      auto faulty = std::make_unique<store::FaultyReader>(std::move(reader));
      device_ = faulty.get();
      return std::unique_ptr<store::BlockReader>(std::move(faulty));
    };
    auto model = load::LoadModel(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    transformer_ = model_->MakeTransformer(16, 512);
    cache_ = *model_->MakeCache(512);
    sampler_ = std::make_unique<sampling::Sampler>(model_->config.vocab_size);
    governor_ =
        std::make_unique<adapt::FfnGovernor>(*model_, *transformer_, adapt::GovernorOptions{});
  }
  void TearDown() override { std::remove(bundle_.c_str()); }

  TokenChannel::Update Run(std::optional<milliseconds> allowed = {}) {
    spec::TransformerTarget target(*transformer_, *cache_, *model_->pool);
    spec::Decoder decoder({.target = target, .sampler = *sampler_, .capacity = cache_->capacity()});
    const sched::AnswerSteps answers({.prefixes = nullptr,
                                      .tokenizer = *model_->tokenizer,
                                      .capacity = cache_->capacity(),
                                      .heartbeat = &heartbeat_});
    sched::DecodeLoop loop({.transformer = *transformer_,
                            .cache = *cache_,
                            .answers = answers,
                            .sampler = *sampler_,
                            .decoder = decoder,
                            .governor = *governor_});
    const auto now = sched::SteadyClock::now();
    Request request;
    request.prompt = {1, 400, 500};
    request.sampling.temperature = 0;
    request.max_tokens = 20;
    request.ignore_eos = true;
    sched::Job job{.request = std::move(request),
                   .channel = std::make_shared<TokenChannel>(std::function<void()>()),
                   .submitted = now};
    if (allowed.has_value()) job.request.deadline = now + *allowed;
    const auto channel = job.channel;
    sched::Sequence sequence(std::move(job), cache_->pool(), cache_->capacity(), *model_->tokenizer,
                             *model_->ModesFor(""));
    EXPECT_EQ(loop.Run(sequence), sched::TurnEnd::kFinished);
    TokenChannel::Update update;
    channel->TakeUpdate(update);
    return update;
  }

  static constexpr const char* kModel = SOURCE_DIR "/config/models/tidepool.gguf";
  const std::string bundle_ = StrCat(testing::TempDir(), "flash-", ::getpid(), ".tcb");
  store::FaultyReader* device_ = nullptr;  // the device of model_
  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<nn::KvCache> cache_;
  std::unique_ptr<sampling::Sampler> sampler_;
  std::unique_ptr<adapt::FfnGovernor> governor_;
  std::atomic<std::int64_t> heartbeat_{0};
};

TEST_F(FlashRequests, AnErrorOnceIsNotSeen) {
  const auto want = Run();
  EXPECT_EQ(want.reason, FinishReason::kLength);
  device_->Inject({.kind = store::Fault::Kind::kError, .count = 1});
  const auto got = Run();
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(model_->flash_counters().retries, 1);
}

TEST_F(FlashRequests, AFailingDeviceEndsTheRequestAndTheNextOneBeginsAnew) {
  const auto want = Run();
  device_->Inject({.kind = store::Fault::Kind::kError});
  for (int i = 0; i < 2; ++i) {
    const auto failed = Run();
    EXPECT_EQ(failed.reason, FinishReason::kError);
    EXPECT_EQ(failed.error.code(), StatusCode::kUnavailable);
    EXPECT_NE(failed.error.message().find("layer "), std::string::npos) << failed.error.message();
  }
  device_->Clear();
  EXPECT_EQ(Run().tokens, want.tokens);
}

// The deadline holds even if the device answers only afterwards.
TEST_F(FlashRequests, TheDeadlineHoldsWhileTheDeviceIsSilent) {
  const auto want = Run();
  device_->set_real_time(true);
  device_->Inject({.kind = store::Fault::Kind::kDelay});
  const std::int64_t before = heartbeat_;
  const auto late = Run(milliseconds(300));
  EXPECT_EQ(late.reason, FinishReason::kError);
  EXPECT_EQ(late.error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.error.message().find("waiting for the flash device"), std::string::npos)
      << late.error.message();
  EXPECT_GE(device_->time_given(), milliseconds(50));
  EXPECT_GE(heartbeat_ - before, 2);  // a watchdog sees waiting, not a hang
  device_->Clear();
  device_->Release();
  EXPECT_EQ(Run(std::chrono::minutes(10)).tokens, want.tokens);
}

TEST_F(FlashRequests, ADeadlineThatHasPassedEndsTheRequestInTheQueue) {
  const auto late = Run(milliseconds(0));
  EXPECT_EQ(late.error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.error.message().find("in the queue"), std::string::npos) << late.error.message();
}

}  // namespace
}  // namespace thermocline::ffn
