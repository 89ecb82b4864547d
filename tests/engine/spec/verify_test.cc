// Draft, then verify: every sequence has the probability of plain decoding.
#include "engine/spec/verify.h"

#include <gtest/gtest.h>

#include "tests/engine/spec/enumerate.h"
#include "tests/engine/spec/toy.h"

namespace thermocline::spec {
namespace {

using sampling::Distribution;
using sampling::RandomSource;
using sampling::Sampler;
using sampling::Stream;

using Rule = std::function<Verdict(const Distribution& target, const Proposal&, const RandomSource&,
                                   std::uint64_t position)>;

Rule RuleOf(Acceptance acceptance) {
  return [acceptance](const Distribution& target, const Proposal& proposal,
                      const RandomSource& random, std::uint64_t position) {
    Distribution scratch;
    return VerifyProposal(target, proposal, acceptance, random, position, scratch);
  };
}

// A text that grows to `length` tokens, or to the end token.
class ToyText {
 public:
  ToyText(const Toy& toy, const SamplingParams& params, std::size_t length)
      : toy_(toy), target_(toy.vocab_size, 16), draft_(toy.vocab_size, 16), length_(length) {
    target_.Begin(params, kToyPrompt);
    draft_.Begin(params, kToyPrompt);
  }
  bool ended() const { return ToyEnded(sequence_, length_); }
  Tokens text() const { return ToyTextOf(sequence_); }
  std::uint64_t position() const { return sequence_.size(); }
  const Distribution& Target() { return target_.Compute(toy_.Target(sequence_)); }
  void Push(int token) {
    sequence_.push_back(token);
    target_.Accept(token);
    draft_.Accept(token);
  }
  // The draft's next `count` tokens. `drawn`: with their distributions; else arbitrary guesses.
  // `sure`: the draft ends after a token whose probability is not above this.
  std::vector<Proposal> Propose(int count, bool drawn, double sure, const RandomSource& random) {
    std::vector<Proposal> out;
    Tokens ahead = sequence_;
    for (int i = 0; i < count; ++i) {
      Proposal proposal;
      const Distribution& q = draft_.Compute(toy_.Draft(ahead));
      if (drawn) proposal.distribution = q;
      proposal.token = drawn ? random.Pick(q, ahead.size(), Stream::kToken)
                             : static_cast<int>(ahead.size() * 3 + toy_.seed) % toy_.vocab_size;
      draft_.Accept(proposal.token);
      ahead.push_back(proposal.token);
      out.push_back(proposal);
      if (drawn && q.Probability(proposal.token) <= sure) break;
    }
    for (std::size_t i = 0; i < out.size(); ++i) draft_.Retract();
    return out;
  }

 private:
  const Toy& toy_;
  Sampler target_, draft_;
  std::size_t length_;
  Tokens sequence_ = kToyPrompt;
};

struct Case {
  Toy toy = {};
  SamplingParams params = {};
  std::size_t length = 3;
  int draft = 2;        // tokens per draft
  bool drawn = true;    // proposals have distributions
  double sure = 0;      // the draft ends after a token that is not likelier
  bool adapts = false;  // one token more after an accepted draft, one less after another
};

Outcomes Plain(const Case& c) {
  return Enumerate(
      [&c](const RandomSource& random) { return PlainToyText(c.toy, c.params, c.length, random); });
}

Tokens DraftThenVerify(const Case& c, const Rule& rule, const RandomSource& random) {
  ToyText text(c.toy, c.params, c.length);
  int count = c.draft;
  while (!text.ended()) {
    bool accepted = true;
    for (const Proposal& proposal : text.Propose(count, c.drawn, c.sure, random)) {
      const Verdict verdict = rule(text.Target(), proposal, random, text.position());
      text.Push(verdict.token);
      accepted = verdict.accepted;
      if (!accepted || text.ended()) break;
    }
    if (accepted && !text.ended()) text.Push(DrawToken(text.Target(), random, text.position()));
    if (c.adapts) count = accepted ? std::min(count + 1, 3) : std::max(count - 1, 0);
  }
  return text.text();
}

Outcomes Speculative(const Case& c, const Rule& rule) {
  return Enumerate([&](const RandomSource& random) { return DraftThenVerify(c, rule, random); });
}

void ExpectTheTargetsDistribution(const Case& c, const std::string& what) {
  const Outcomes plain = Plain(c);
  for (const Acceptance acceptance : {Acceptance::kSameText, Acceptance::kRejection}) {
    const auto [difference, tokens] = Difference(plain, Speculative(c, RuleOf(acceptance)));
    EXPECT_LE(difference, kToyTolerance)
        << what << ", pair " << static_cast<int>(c.toy.pair) << ", draft " << c.draft << ", rule "
        << static_cast<int>(acceptance) << ", " << testing::PrintToString(tokens);
  }
}

TEST(Enumeration, PlainDecodingGivesTheProductOfTheProbabilities) {
  const Case c{.toy = {.vocab_size = 8}, .params = {.top_p = 0.95, .logit_bias = {}}};
  Outcomes products;
  const std::function<void(const Tokens&, long double)> extend = [&](const Tokens& text,
                                                                     long double probability) {
    ToyText from(c.toy, c.params, c.length);
    for (const int token : text) from.Push(token);
    if (from.ended()) {
      products[text] = probability;
      return;
    }
    const Distribution& p = from.Target();
    long double total = 0;
    for (const double weight : p.weights) total += weight;
    for (std::size_t i = 0; i < p.size(); ++i) {
      Tokens next = text;
      next.push_back(p.tokens[i]);
      extend(next, probability * p.weights[i] / total);
    }
  };
  extend({}, 1);
  const Outcomes plain = Plain(c);
  EXPECT_GT(plain.size(), 100u);
  EXPECT_LE(Difference(plain, products).first, 1e-18L);
  EXPECT_LE(std::abs(Total(plain) - 1), 1e-17L);
}

TEST(Verify, GivesTheTargetsDistribution) {
  for (const SamplingParams& params : ToySamplings())
    for (const ToyPair pair : kToyPairs)
      ExpectTheTargetsDistribution({.toy = {.pair = pair}, .params = params, .draft = 2}, "drawn");
  for (const int draft : {1, 3})
    ExpectTheTargetsDistribution({.params = {.logit_bias = {}}, .draft = draft}, "drawn");
}

TEST(Verify, GivesTheTargetsDistributionToProposalsFromNowhere) {
  for (const SamplingParams& params : ToySamplings())
    for (const int draft : {1, 3})
      ExpectTheTargetsDistribution({.params = params, .draft = draft, .drawn = false}, "guessed");
}

TEST(Verify, GivesTheTargetsDistributionToOtherShapes) {
  for (const std::uint64_t seed : {2, 3, 4}) {
    ExpectTheTargetsDistribution(
        {.toy = {.vocab_size = 4, .seed = seed}, .length = 4, .draft = 2, .adapts = true},
        "four tokens");
    ExpectTheTargetsDistribution({.toy = {.seed = seed}, .draft = 3, .sure = 0.3},
                                 "the draft ends behind an unlikely token, which is judged");
    ExpectTheTargetsDistribution(
        {.toy = {.vocab_size = 8, .pair = ToyPair::kNear, .seed = seed}, .length = 2, .draft = 2},
        "eight words");
  }
}

// The enumeration detects plausible but wrong rules.
TEST(Verify, WrongRulesAreFound) {
  const Rule right = RuleOf(Acceptance::kRejection);
  const auto judged = [](bool residual_left_out, Stream correction) -> Rule {
    return [=](const Distribution& target, const Proposal& x, const RandomSource& random,
               std::uint64_t position) -> Verdict {
      const double p = target.Probability(x.token), q = x.distribution.Probability(x.token);
      if (random.Accept(std::min(1.0, p / q), position)) return {true, x.token};
      Distribution from;
      for (std::size_t i = 0; i < target.size(); ++i) {
        const int token = target.tokens[i];
        const double left =
            target.Probability(token) - (residual_left_out ? 0 : x.distribution.Probability(token));
        if (left > 0) from.Add(token, left);
      }
      return {false, random.Pick(from, position, correction)};
    };
  };
  // Skipping the judgment of unlikely proposals makes it depend on the drawn token, as a draft
  // would that ends at an unlikely token and drops it.
  const auto choosy = [](Acceptance acceptance) -> Rule {
    return [acceptance](const Distribution& target, const Proposal& x, const RandomSource& random,
                        std::uint64_t position) -> Verdict {
      if (x.distribution.Probability(x.token) > 0.3)
        return RuleOf(acceptance)(target, x, random, position);
      return {false, DrawToken(target, random, position)};
    };
  };
  const Rule believing = [](const Distribution&, const Proposal& x, const RandomSource&,
                            std::uint64_t) -> Verdict {
    return {true, x.token};
  };
  for (const ToyPair pair : {ToyPair::kNear, ToyPair::kUnrelated}) {
    const Case c{.toy = {.pair = pair}};
    const Outcomes plain = Plain(c);
    const auto error = [&](const Rule& rule) {
      return Difference(plain, Speculative(c, rule)).first;
    };
    EXPECT_LE(error(right), kToyTolerance);
    EXPECT_LE(error(judged(false, Stream::kCorrection)), kToyTolerance);
    EXPECT_GT(error(judged(true, Stream::kCorrection)), 1e-3L);
    EXPECT_GT(error(judged(false, Stream::kToken)), 1e-3L);
    EXPECT_GT(error(choosy(Acceptance::kRejection)), 1e-3L);
    EXPECT_GT(error(believing), 1e-3L);
    EXPECT_LE(error(choosy(Acceptance::kSameText)), kToyTolerance);
  }
}

// Same text guarantees more than the distribution: the same tokens, for every seed.
TEST(Verify, SameTextGivesPlainDecodingsTokens) {
  for (const ToyPair pair : kToyPairs) {
    const Case c{.toy = {.vocab_size = 8, .pair = pair}, .length = 8, .draft = 3, .adapts = true};
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const sampling::SeededRandomSource random(seed);
      EXPECT_EQ(DraftThenVerify(c, RuleOf(Acceptance::kSameText), random),
                PlainToyText(c.toy, c.params, c.length, random));
    }
  }
}

TEST(Verify, EqualDistributionsAreAccepted) {
  Distribution p, scratch;
  for (int token = 0; token < 7; ++token) p.Add(token, 0.1 + token);
  Proposal x{.distribution = {}};
  for (int token = 6; token >= 0; --token) x.distribution.Add(token, (0.1 + token) * 3);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const sampling::SeededRandomSource random(seed);
    x.token = random.Pick(x.distribution, 5, Stream::kToken);
    for (const Acceptance acceptance : {Acceptance::kSameText, Acceptance::kRejection}) {
      const Verdict verdict = VerifyProposal(p, x, acceptance, random, 5, scratch);
      EXPECT_TRUE(verdict.accepted);
      EXPECT_EQ(verdict.token, x.token);
    }
  }
}

TEST(Verify, ReservedScratchIsEnough) {
  constexpr int kVocabulary = 50000;
  Distribution p, scratch;
  Proposal x{.distribution = {}};
  for (int token = 0; token < kVocabulary; ++token) {
    p.Add(kVocabulary - 1 - token, 1 + token % 7);
    x.distribution.Add(token, 1 + token % 5);
  }
  scratch.Reserve(kVocabulary);
  const int* tokens = scratch.tokens.data();
  const double* weights = scratch.weights.data();
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const sampling::SeededRandomSource random(seed);
    x.token = random.Pick(x.distribution, 0, Stream::kToken);
    refused += VerifyProposal(p, x, Acceptance::kRejection, random, 0, scratch).accepted ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(scratch.tokens.data(), tokens);
  EXPECT_EQ(scratch.weights.data(), weights);
}

TEST(Verify, ATokenThatTheTargetDoesNotKeepNeverComes) {
  Distribution p, scratch;
  p.Add(4, 2);
  p.Add(2, 1);
  Proposal x{.token = 9, .distribution = {}};
  for (const double share : {1.0, 0.5, 1e-17}) {  // the last is lost in rounding
    x.distribution.Clear();
    x.distribution.Add(4, 2);
    x.distribution.Add(2, 1);
    x.distribution.Add(9, 3 * share);
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const Verdict v = VerifyProposal(p, x, Acceptance::kRejection,
                                       sampling::SeededRandomSource(seed), 0, scratch);
      EXPECT_FALSE(v.accepted);
      EXPECT_TRUE(v.token == 4 || v.token == 2);
    }
  }
}

}  // namespace
}  // namespace thermocline::spec
