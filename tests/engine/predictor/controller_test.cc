// The controller on recorded activations of a real model.
#include "engine/predictor/controller.h"

#include <algorithm>
#include <cmath>

#include "engine/base/file.h"
#include "tests/engine/exec/ffn_models.h"

namespace thermocline::predictor {
namespace {

// One token in one layer: the sign scores of its neurons.
struct TraceToken {
  std::vector<int> all;     // [F] ascending
  std::vector<int> active;  // of the active neurons, ascending
};
using Trace = std::vector<TraceToken>;

int CountReaching(const std::vector<int>& sorted, double least) {
  return static_cast<int>(sorted.end() - std::lower_bound(sorted.begin(), sorted.end(), least));
}

AuditCounts CountsAt(const TraceToken& token, double shift) {
  AuditCounts c{.tokens = 1};
  c.tp = CountReaching(token.active, shift);
  c.fp = CountReaching(token.all, shift) - c.tp;
  c.fn = static_cast<std::int64_t>(token.active.size()) - c.tp;
  c.tn = static_cast<std::int64_t>(token.all.size()) - c.tp - c.fp - c.fn;
  return c;
}

AuditCounts CountsAt(const Trace& trace, double shift) {
  AuditCounts sum;
  for (const TraceToken& token : trace) sum += CountsAt(token, shift);
  return sum;
}

class Recorder : public ffn::FfnTap {
 public:
  explicit Recorder(const load::LoadedModel& model) : model_(model), traces_(6) {}

  void OnLayer(const ffn::FfnSample& s) override {
    const int d = model_.config.hidden_size, f = model_.config.intermediate_size;
    const auto layer = static_cast<std::size_t>(s.layer);
    std::vector<std::uint64_t> words(static_cast<std::size_t>(kernels::SignInputWords(d, 1)));
    std::vector<std::int32_t> scores(static_cast<std::size_t>(f));
    for (int t = 0; t < s.tokens; ++t) {
      model_.ops->sign_scores(
          {.planes = model_.predictors->layers[layer].sign->planes,
           .input = kernels::PackSignInput(s.hidden + t * d, d, 1, words.data()),
           .row_begin = 0,
           .row_end = f,
           .scores = scores.data()});
      TraceToken token{.all = {scores.begin(), scores.end()}, .active = {}};
      for (int i = 0; i < f; ++i)
        if (s.neurons[t * f + i] != 0)
          token.active.push_back(token.all[static_cast<std::size_t>(i)]);
      std::sort(token.all.begin(), token.all.end());
      std::sort(token.active.begin(), token.active.end());
      traces_[layer].push_back(std::move(token));
    }
  }
  const std::vector<Trace>& traces() const { return traces_; }

 private:
  const load::LoadedModel& model_;
  std::vector<Trace> traces_;
};

// 1024 tokens of a book, by layer.
const std::vector<Trace>& Traces() {
  static const std::vector<Trace> traces = [] {
    const auto model = exec::Load({.path = exec::kTidepool, .modes = "sign", .threads = 2});
    const std::string book = *base::ReadFileToString(SOURCE_DIR "/tests/data/wizard_of_oz.txt");
    const auto tokens = model->tokenizer->Encode(book.substr(2000, 12000), {});
    const auto transformer = model->MakeTransformer(64, 512);
    Recorder recorder(*model);
    transformer->ffn().SetTap(&recorder);
    const auto cache = *model->MakeCache(512);
    for (std::size_t at = 0; at < 1024; at += 64) {
      if (at == 512) cache->Clear();
      EXPECT_TRUE(transformer
                      ->Forward(std::span(tokens).subspan(at, 64), *cache,
                                exec::Transformer::Logits::kNone, exec::Transformer::Step::kPrefill)
                      .ok());
    }
    return recorder.traces();
  }();
  return traces;
}

// The governor's parameters for D = 256: unit 16.
constexpr ControllerParams kParams{.recall = 0.97, .step = 2, .step_min = 0.25, .shift_max = 64};

// Feeds `count` tokens of the trace in a fixed shuffled order. Returns the last token that moved.
int Feed(const Trace& trace, int count, unsigned seed, LayerController& controller) {
  std::mt19937 random(seed);
  int last_move = -1;
  for (int i = 0; i < count; ++i) {
    const double before = controller.shift();
    const bool moved = controller.Observe(CountsAt(trace[random() % trace.size()], before));
    EXPECT_EQ(moved, controller.shift() != before);
    EXPECT_LE(std::fabs(controller.shift() - before), kParams.step) << "bounded steps";
    EXPECT_LE(std::fabs(controller.shift()), kParams.shift_max);
    if (moved) last_move = i;
  }
  return last_move;
}

// Expects the recall to be kept, and one more step to lose it or to be undone by the controller.
void ExpectHolds(const Trace& trace, const LayerController& controller, int layer) {
  const AuditCounts here = CountsAt(trace, controller.shift());
  EXPECT_GE(here.recall(), kParams.recall - 0.01) << "layer " << layer;
  EXPECT_LE(here.recall(), kParams.recall + 2 * kParams.slack) << "layer " << layer;
  const AuditCounts lower = CountsAt(trace, controller.shift() - kParams.step);
  EXPECT_LT(here.predicted_share(), lower.predicted_share());
}

TEST(Controller, TracesAreWorthPredicting) {
  for (const Trace& trace : Traces()) {
    ASSERT_EQ(trace.size(), 1024U);
    EXPECT_GT(CountsAt(trace, 0).active_share(), 0.01);
    EXPECT_LT(CountsAt(trace, 0).active_share(), 0.6);
    EXPECT_GT(CountsAt(trace, -64).recall(), 0.97);
    EXPECT_LT(CountsAt(trace, 64).recall(), 0.97);
  }
}

TEST(Controller, ComesToRestOnAStationaryInput) {
  constexpr int kTokens = 6000;
  for (int layer = 0; layer < 6; ++layer) {
    const Trace& trace = Traces()[static_cast<std::size_t>(layer)];
    for (const unsigned seed : {1U, 2U, 3U}) {
      LayerController controller(kParams);
      const int last_move = Feed(trace, kTokens, seed, controller);
      ExpectHolds(trace, controller, layer);
      EXPECT_GT(controller.moves(), 0) << layer;
      EXPECT_LT(last_move, kTokens / 2) << "layer " << layer << " seed " << seed;
      EXPECT_LE(controller.reversals(), 6) << "layer " << layer << " seed " << seed;
      EXPECT_NEAR(controller.recall(), CountsAt(trace, controller.shift()).recall(), 0.02);
    }
  }
}

TEST(Controller, FollowsAnInputThatChanges) {
  for (const auto& [from, to] : {std::pair{0, 5}, {5, 0}, {1, 4}, {4, 1}}) {
    LayerController controller(kParams);
    Feed(Traces()[static_cast<std::size_t>(from)], 4000, 1, controller);
    const std::int64_t reversals = controller.reversals();
    const Trace& then = Traces()[static_cast<std::size_t>(to)];
    const std::int64_t moves = controller.moves();
    Feed(then, 3000, 2, controller);
    ExpectHolds(then, controller, to);
    EXPECT_LE(controller.moves() - moves, 12) << from << " to " << to;
    EXPECT_LE(controller.reversals() - reversals, 4) << from << " to " << to;
    // If the mean is at the very edge of the target, one more step may happen by chance.
    const std::int64_t rested = controller.moves();
    Feed(then, 9000, 3, controller);
    ExpectHolds(then, controller, to);
    EXPECT_LE(controller.moves() - rested, 2) << from << " to " << to;
  }
}

TEST(Controller, FrozenNeverMovesAndThawedDoes) {
  LayerController controller(kParams);
  controller.Freeze(true);
  EXPECT_EQ(Feed(Traces()[0], 2000, 1, controller), -1);
  EXPECT_EQ(controller.shift(), 0);
  EXPECT_EQ(controller.moves(), 0);
  EXPECT_NEAR(controller.recall(), CountsAt(Traces()[0], 0).recall(), 0.02) << "it observes";
  controller.Freeze(false);
  Feed(Traces()[0], 4000, 1, controller);
  ExpectHolds(Traces()[0], controller, 0);
}

TEST(Controller, TokensWithoutActiveNeuronsAreNoEvidence) {
  LayerController controller(kParams);
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(controller.Observe({.tokens = 1, .fp = 10, .tn = 90}));
  EXPECT_EQ(controller.recall(), 1.0);
  EXPECT_EQ(controller.shift(), 0);
}

TEST(Controller, StaysWithinItsBounds) {
  LayerController controller(kParams);
  for (int i = 0; i < 5000; ++i) controller.Observe({.tokens = 1, .tp = 0, .fn = 5, .tn = 95});
  EXPECT_EQ(controller.shift(), -kParams.shift_max);
  for (int i = 0; i < 20000; ++i) controller.Observe({.tokens = 1, .tp = 5, .fp = 5, .tn = 90});
  EXPECT_EQ(controller.shift(), kParams.shift_max);
}

}  // namespace
}  // namespace thermocline::predictor
