// The decoder with toy models: every sequence has the probability of plain decoding, in every mode
// and with both rules.
#include <gtest/gtest.h>

#include <optional>

#include "engine/spec/decoder.h"
#include "engine/spec/model_source.h"
#include "tests/engine/spec/enumerate.h"
#include "tests/engine/spec/toy.h"

namespace thermocline::spec {
namespace {

using sampling::RandomSource;

class ToyTarget final : public Target {
 public:
  explicit ToyTarget(const Toy& toy) : toy_(toy) {}
  exec::StepResult<std::span<const float>> Step(std::span<const int> tokens) override {
    stepped_.assign(tokens.begin(), tokens.end());
    Tokens ahead = kept_;
    logits_.clear();
    for (const int token : tokens) {
      ahead.push_back(token);
      const auto row = toy_.Target(ahead);
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
    return std::span<const float>(logits_);
  }
  void Keep(int kept) override {
    kept_.insert(kept_.end(), stepped_.begin(), stepped_.begin() + kept);
  }
  void Begin() { kept_ = kToyPrompt; }
  void SetThreads(int) override {}
  int threads() const override { return 1; }

 private:
  const Toy& toy_;
  Tokens kept_ = kToyPrompt, stepped_;
  std::vector<float> logits_;
};

// Forwards to the current run's random source.
class CurrentRandomSource final : public RandomSource {
 public:
  const RandomSource* now = nullptr;
  int Pick(const sampling::Distribution& from, std::uint64_t position,
           sampling::Stream stream) const override {
    return now->Pick(from, position, stream);
  }
  void Rank(const sampling::Distribution& from, std::uint64_t position, sampling::Stream stream,
            std::size_t count, Tokens& tokens) const override {
    now->Rank(from, position, stream, count, tokens);
  }
  bool Accept(double probability, std::uint64_t position) const override {
    return now->Accept(probability, position);
  }
};

// Draws like all sources that have logits.
class ToySource final : public DraftSource {
 public:
  ToySource(const Toy& toy, Acceptance acceptance, std::size_t reach, const RandomSource& random)
      : toy_(toy), proposals_(toy.vocab_size, capacity()), acceptance_(acceptance), reach_(reach) {
    proposals_.SetRandomSource(&random);
  }
  const char* name() const override { return "toy"; }
  void Begin(std::span<const int> prompt, const SamplingParams& params) override {
    proposals_.Begin(prompt, params, 2, acceptance_ == Acceptance::kRejection);
  }
  Status Propose(std::span<const int> sequence, const More& more, Draft& draft) override {
    Tokens ahead(sequence.begin(), sequence.end());
    for (int i = 0; i < draft.size; ++i) ahead.push_back(draft[i].token);
    while (draft.size < kProposalsMax && ahead.size() <= reach_ && more(draft)) {
      proposals_.Accept(std::span<const int>(ahead).subspan(kToyPrompt.size()));
      Proposal& proposal = draft[draft.size++];
      proposals_.Draw(toy_.Draft(ahead), static_cast<int>(ahead.size()), proposal);
      ahead.push_back(proposal.token);
    }
    return OkStatus();
  }
  bool parallel() const override { return true; }
  int capacity() const override { return 64; }

 private:
  const Toy& toy_;
  ProposalSampler proposals_;
  const Acceptance acceptance_;
  const std::size_t reach_;
};

struct Case {
  Toy toy = {};
  SamplingParams params = {};
  std::size_t length = 3;
  int draft = 2;
  SpecMode mode = SpecMode::kSync;
  Acceptance acceptance = Acceptance::kSameText;
  std::size_t reach = 64;  // tokens of a sequence that the draft can see
  bool fixed = true;       // else the length that the clock says is best
  // The pair of another source, which drafts while the target verifies.
  std::optional<ToyPair> beside = {};
};

Toy BesideOf(const Case& c) {
  Toy toy = c.toy;
  toy.pair = c.beside.value_or(c.toy.pair);
  return toy;
}

// A decoder that is reused for many texts.
class ToyDecoder {
 public:
  explicit ToyDecoder(const Case& c)
      : case_(c),
        sampler_(c.toy.vocab_size, 64),
        target_(case_.toy),
        source_(case_.toy, c.acceptance, c.reach, random_),
        beside_toy_(BesideOf(c)),
        beside_(beside_toy_, c.acceptance, c.reach, random_),
        controller_({.fixed = c.fixed, .parallel = true}),
        decoder_({.target = target_,
                  .sampler = sampler_,
                  .capacity = 64,
                  .source = &source_,
                  .beside = c.beside.has_value() ? &beside_ : nullptr,
                  .controller = &controller_,
                  .acceptance = c.acceptance,
                  .random_source = &random_}) {}

  Tokens Decode(const RandomSource& random) {
    random_.now = &random;
    target_.Begin();
    sampler_.Begin(case_.params, kToyPrompt);
    decoder_.Begin(kToyPrompt, case_.mode, case_.draft);
    Tokens sequence = kToyPrompt;
    sequence.push_back(decoder_.First(case_.toy.Target(kToyPrompt)));
    while (!ToyEnded(sequence, case_.length)) {
      const std::size_t have = sequence.size() - kToyPrompt.size();
      const auto tokens = decoder_.Next(static_cast<int>(case_.length - have));
      EXPECT_TRUE(tokens.ok() && !tokens->empty());
      for (const int token : *tokens)
        if (!ToyEnded(sequence, case_.length)) sequence.push_back(token);
    }
    decoder_.End();
    return ToyTextOf(sequence);
  }
  const SpecUsage& usage() const { return decoder_.usage(); }

 private:
  const Case case_;
  CurrentRandomSource random_;
  sampling::Sampler sampler_;
  ToyTarget target_;
  ToySource source_;
  const Toy beside_toy_;
  ToySource beside_;
  Controller controller_;
  Decoder decoder_;
};

void ExpectTheTargetsDistribution(Case c) {
  const Outcomes plain = Enumerate(
      [&c](const RandomSource& random) { return PlainToyText(c.toy, c.params, c.length, random); });
  for (const Acceptance acceptance : {Acceptance::kSameText, Acceptance::kRejection}) {
    c.acceptance = acceptance;
    int runs = 0;
    ToyDecoder decoder(c);
    const Outcomes drafted = Enumerate([&](const RandomSource& random) {
      ++runs;
      const Tokens text = decoder.Decode(random);
      EXPECT_GE(decoder.usage().draft_tokens, decoder.usage().accepted_tokens);
      return text;
    });
    const auto [difference, tokens] = Difference(plain, drafted);
    EXPECT_LE(difference, kToyTolerance)
        << SpecModeName(c.mode) << ", pair " << static_cast<int>(c.toy.pair) << ", draft "
        << c.draft << ", rule " << static_cast<int>(acceptance) << ", " << runs << " runs, "
        << testing::PrintToString(tokens);
  }
}

TEST(DecoderEnumeration, SyncGivesTheTargetsDistribution) {
  for (const SamplingParams& params : ToySamplings())
    for (const ToyPair pair : kToyPairs)
      ExpectTheTargetsDistribution({.toy = {.pair = pair}, .params = params});
  for (const int draft : {1, 3})
    ExpectTheTargetsDistribution({.toy = {.vocab_size = 4}, .length = 4, .draft = draft});
}

TEST(DecoderEnumeration, WorkingAheadGivesTheTargetsDistribution) {
  for (const SpecMode mode : {SpecMode::kBranch, SpecMode::kExhaustive}) {
    for (const ToyPair pair : kToyPairs)
      ExpectTheTargetsDistribution({.toy = {.vocab_size = 4, .pair = pair}, .mode = mode});
    for (SamplingParams params : ToySamplings()) {
      if (params.top_k == 0)
        params.top_k = 3;  // the draft's guesses make more cases than the target
      ExpectTheTargetsDistribution({.params = params, .draft = 1, .mode = mode});
    }
  }
}

// Two sources: one drafts while the target waits, the other in parallel, and a position may get a
// proposal of either. Only exhaustive is deterministic without a clock.
TEST(DecoderEnumeration, AnotherSourceAheadGivesTheTargetsDistribution) {
  for (const ToyPair beside : kToyPairs) {
    ExpectTheTargetsDistribution({.toy = {.vocab_size = 4, .pair = ToyPair::kNear},
                                  .mode = SpecMode::kExhaustive,
                                  .beside = beside});
    ExpectTheTargetsDistribution({.toy = {.vocab_size = 4, .pair = beside},
                                  .length = 4,
                                  .draft = 1,
                                  .mode = SpecMode::kExhaustive,
                                  .beside = ToyPair::kUnrelated});
  }
}

// The tokens do not depend on the clock, so the enumeration holds with one, too.
TEST(DecoderEnumeration, DraftsOfAnyLengthGiveTheTargetsDistribution) {
  for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch})
    for (const ToyPair pair : {ToyPair::kNear, ToyPair::kUnrelated})
      ExpectTheTargetsDistribution(
          {.toy = {.vocab_size = 4, .pair = pair}, .draft = 3, .mode = mode, .fixed = false});
}

TEST(DecoderEnumeration, ADraftWhoseContextEndsLeavesTheRestPlain) {
  for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive})
    for (const std::size_t reach : {1, 2, 3, 4})  // the prompt has two tokens
      ExpectTheTargetsDistribution({.toy = {.vocab_size = 4}, .mode = mode, .reach = reach});
}

// A seed has one text, whatever the mode and the start of rounds, even if it is not plain
// decoding's.
TEST(DecoderEnumeration, ModesAgreeOnEverySeed) {
  int hits = 0;
  for (const ToyPair pair : kToyPairs) {
    for (const Acceptance acceptance : {Acceptance::kSameText, Acceptance::kRejection}) {
      Case c{.toy = {.vocab_size = 8, .pair = pair}, .length = 20, .acceptance = acceptance};
      c.params.logit_bias = {{kToyEnd, -100.0F}};
      ToyDecoder first(c);
      for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive}) {
        c.mode = mode;
        c.draft = 2 + static_cast<int>(mode);
        c.fixed = mode == SpecMode::kExhaustive;
        ToyDecoder other(c);
        for (std::uint64_t seed = 0; seed < 60; ++seed) {
          const sampling::SeededRandomSource random(seed);
          const Tokens text = first.Decode(random);
          if (acceptance == Acceptance::kSameText) {
            EXPECT_EQ(text, PlainToyText(c.toy, c.params, c.length, random));
          }
          EXPECT_EQ(other.Decode(random), text) << SpecModeName(mode) << " " << seed;
          hits += other.usage().branch_hits;
        }
      }
    }
  }
  EXPECT_GT(hits, 100);
}

}  // namespace
}  // namespace thermocline::spec
