// Verification with the Tidepool pair's own distributions, and what the two rules accept of it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/chat.h"
#include "engine/load/loaded_model.h"
#include "engine/sampling/sampler.h"
#include "engine/spec/verify.h"
#include "tests/engine/sampling/chi_square.h"
#include "tests/engine/sampling/coupling.h"

namespace thermocline::spec {
namespace {

using sampling::Distribution;
using sampling::SeededChance;
using sampling::Stream;
using Tokens = std::vector<int>;

constexpr int kContext = 512;

// A model with one sequence, and a sampler without penalties.
class Runner {
 public:
  Runner(const std::string& file, const SamplingParams& params) {
    load::LoadOptions options;
    options.model.path = SOURCE_DIR "/config/models/" + file;
    options.model.threads = 1;  // models so small gain nothing by more
    model_ = *load::LoadModel(options);
    transformer_ = model_->MakeTransformer(kContext, kContext, kContext);
    cache_ = *model_->MakeCache(kContext);
    sampler_ = std::make_unique<sampling::Sampler>(vocab_size(), kContext);
    sampler_->Begin(params, {});
  }
  const text::Tokenizer& tokenizer() const { return *model_->tokenizer; }
  // Distributions behind each of `tokens`, which follow the first `position` of the sequence.
  std::vector<Distribution> Behind(const Tokens& tokens, int position) {
    cache_->SetLength(position);
    const auto logits = *transformer_->Forward(
        tokens, *cache_, exec::Transformer::Logits::kAll,
        tokens.size() == 1 ? exec::Transformer::Step::kDecode : exec::Transformer::Step::kPrefill);
    const auto row = static_cast<std::size_t>(vocab_size());
    std::vector<Distribution> out;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      out.push_back(sampler_->Compute(logits.subspan(i * row, row)));
    return out;
  }

 private:
  int vocab_size() const { return model_->config.vocab_size; }

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<nn::KvCache> cache_;
  std::unique_ptr<sampling::Sampler> sampler_;
};

struct Pair {
  explicit Pair(const SamplingParams& params)
      : target("tidepool.gguf", params), draft("tidepool-draft.gguf", params) {}
  Runner target, draft;
};

// A text: the first `begin` tokens are given, the others are to be predicted.
struct Text {
  Tokens tokens;
  std::size_t begin = 1;
};

// A story that the target tells.
Text Story(Pair& pair, const std::string& about, std::uint64_t seed) {
  const auto formatter = *ChatFormatter::Create(pair.target.tokenizer());
  const Json message(Json::Object{{"role", Json("user")},
                                  {"content", Json("Tell me a story about " + about + ".")}});
  Text out;
  out.tokens = *formatter->Encode(Json(Json::Object{{"messages", Json(Json::Array{message})}}));
  out.begin = out.tokens.size();
  Distribution next = pair.target.Behind(out.tokens, 0).back();
  while (out.tokens.size() < kContext - 1) {
    const auto position = out.tokens.size();
    const int token = SeededChance(seed).Pick(next, position, Stream::kToken);
    if (pair.target.tokenizer().IsStop(token)) break;
    out.tokens.push_back(token);
    next = pair.target.Behind({token}, static_cast<int>(position)).back();
  }
  return out;
}

std::vector<Text> Stories(Pair& pair) {
  const char* about[] = {"an owl",   "a fox",  "a turtle", "a very long winter",
                         "a kitten", "a crab", "a boat",   "two friends"};
  std::vector<Text> out;
  for (std::uint64_t seed = 0; seed < 2; ++seed)
    for (const char* subject : about) out.push_back(Story(pair, subject, seed));
  return out;
}

// What neither model was trained on: windows of a novel.
std::vector<Text> Novel(Pair& pair) {
  std::ifstream file(SOURCE_DIR "/tests/data/wizard_of_oz.txt");
  std::stringstream text;
  text << file.rdbuf();
  const Tokens all = pair.target.tokenizer().Encode(text.str().substr(0, 6500), {});
  std::vector<Text> out;
  for (std::size_t at = 0; at + 256 <= all.size(); at += 255) {
    out.push_back({.tokens = {pair.target.tokenizer().vocabulary().bos}});
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
    out.back().tokens.insert(out.back().tokens.end(), from, from + 255);
  }
  return out;
}

SamplingParams Cool() { return {.temperature = 0.8, .top_p = 0.9, .logit_bias = {}}; }

// The positions of a text where the most tokens may come.
std::vector<std::size_t> Widest(const std::vector<Distribution>& p, std::size_t begin,
                                std::size_t count) {
  std::vector<std::size_t> positions;
  for (std::size_t i = begin; i < p.size(); ++i) positions.push_back(i);
  std::stable_sort(positions.begin(), positions.end(),
                   [&](std::size_t a, std::size_t b) { return p[a].size() > p[b].size(); });
  positions.resize(count);
  return positions;
}

struct Drawn {
  std::vector<int> counts;     // by p's tokens, the last: others
  std::vector<int> decisions;  // accepted, refused
};

// Tokens of `draws` seeds at one position, drafted from q and judged by p.
Drawn Draw(const Distribution& p, const Distribution& q, Acceptance acceptance, int draws) {
  std::map<int, std::size_t> cell;
  for (std::size_t i = 0; i < p.size(); ++i) cell[p.tokens[i]] = i;
  Drawn out{std::vector<int>(p.size() + 1), std::vector<int>(2)};
  Proposal proposal{.distribution = q};
  Distribution scratch;
  for (int seed = 0; seed < draws; ++seed) {
    const SeededChance chance(static_cast<std::uint64_t>(seed));
    proposal.token = chance.Pick(q, 31, Stream::kToken);
    const Verdict verdict = Judge(p, proposal, acceptance, chance, 31, scratch);
    ++out.counts[cell.contains(verdict.token) ? cell[verdict.token] : p.size()];
    ++out.decisions[verdict.accepted ? 0 : 1];
  }
  return out;
}

// Counts by the tokens of `from` as counts by those of `to`.
std::vector<int> InCells(const Distribution& from, const std::vector<int>& counts,
                         const Distribution& to) {
  std::vector<int> out(to.size() + 1);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto at = std::find(to.tokens.begin(), to.tokens.end(), from.tokens[i]);
    out[static_cast<std::size_t>(at - to.tokens.begin())] += counts[i];
  }
  return out;
}

TEST(TidepoolDistribution, BothRulesGiveTheTargets) {
  Pair pair(Cool());
  const Text story = Story(pair, "an owl", 1);
  const auto target = pair.target.Behind(story.tokens, 0),
             draft = pair.draft.Behind(story.tokens, 0);
  for (const std::size_t position : Widest(target, story.begin, 6)) {
    const Distribution &p = target[position], &q = draft[position];
    ASSERT_GE(p.size(), 5u);
    std::vector<double> expected;
    for (const double weight : p.weights) expected.push_back(weight / p.total);
    expected.push_back(0);
    // A total variation of 0.01 is found with a probability of 0.99.
    const int draws =
        std::max(200'000, sampling::DrawsToShow(0.01, static_cast<int>(expected.size())));
    const auto both = sampling::SideBySide(p, q);
    const double tv = sampling::TotalVariation(both);
    for (const Acceptance rule : {Acceptance::kSameText, Acceptance::kRejection}) {
      const double accepted = rule == Acceptance::kSameText ? sampling::SameToken(both) : 1 - tv;
      const Drawn drawn = Draw(p, q, rule, draws);
      EXPECT_TRUE(sampling::ChiSquare(drawn.counts, expected).passes()) << position;
      EXPECT_TRUE(sampling::ChiSquare(drawn.decisions, {accepted, 1 - accepted}).passes())
          << position;
      std::printf("position %3zu, %3zu tokens, TV %.3f, %-9s accepts %.3f of %d draws\n", position,
                  p.size(), tv, rule == Acceptance::kSameText ? "same text" : "rejection",
                  drawn.decisions[0] / static_cast<double>(draws), draws);
    }
    // The test can fail: the draft's own tokens are not the target's.
    const Drawn wrong = Draw(q, q, Acceptance::kSameText, draws);
    EXPECT_EQ(sampling::ChiSquare(InCells(q, wrong.counts, p), expected).passes(), tv < 0.01);
  }
}

// Means over the positions of texts: the table of docs/speculation-sampling.md.
struct Means {
  int positions = 0, drafts = 0;
  double rejection = 0, same_text = 0, promised = 0;  // accepted of one token
  double rejection_8 = 0, same_text_8 = 0;            // accepted of drafts of 8 tokens
};

struct Accepted {
  double rejection = 0, same_text = 0;
};

// Mean of the tokens accepted of one draft of 8 tokens behind tokens[0, begin), which both caches
// hold: over the numbers that judge, for the tokens that the draft drew.
Accepted AcceptedOf8(Pair& pair, const Tokens& tokens, std::size_t begin) {
  Tokens fed = {tokens[begin - 1]};
  std::vector<Distribution> draft;
  for (std::size_t at = begin; at < begin + 8; ++at) {
    draft.push_back(pair.draft.Behind({fed.back()}, static_cast<int>(at) - 1).back());
    fed.push_back(SeededChance(begin).Pick(draft.back(), at, Stream::kToken));
  }
  const auto target = pair.target.Behind(fed, static_cast<int>(begin) - 1);
  Accepted mean, all{1, 1};  // all: that all so far are accepted
  for (std::size_t i = 0; i < 8; ++i) {
    const Distribution &p = target[i], &q = draft[i];
    const int token = fed[i + 1];
    const double drawn = q.Probability(token);
    all.rejection *= std::min(1.0, p.Probability(token) / drawn);
    all.same_text *= sampling::SameTokenIs(p, q, token) / drawn;
    mean.rejection += all.rejection;
    mean.same_text += all.same_text;
  }
  return mean;
}

Means Measure(Pair& pair, const std::vector<Text>& texts) {
  Means m;
  for (const Text& text : texts) {
    const auto p = pair.target.Behind(text.tokens, 0), q = pair.draft.Behind(text.tokens, 0);
    for (std::size_t i = text.begin; i < p.size(); ++i, ++m.positions) {
      const auto both = sampling::SideBySide(p[i], q[i]);
      const double tv = sampling::TotalVariation(both), same = sampling::SameToken(both);
      EXPECT_GE(same, (1 - tv) / (1 + tv) - 1e-9);
      EXPECT_LE(same, 1 - tv + 1e-9);
      m.rejection += 1 - tv;
      m.same_text += same;
      m.promised += (1 - tv) / (1 + tv);
    }
    for (std::size_t at = text.tokens.size() - 9; at > text.begin + 12; at -= 12, ++m.drafts) {
      const Accepted accepted = AcceptedOf8(pair, text.tokens, at);
      m.rejection_8 += accepted.rejection;
      m.same_text_8 += accepted.same_text;
    }
  }
  return m;
}

TEST(TidepoolDistribution, AcceptanceOfBothRules) {
  for (const SamplingParams& params : {Cool(), SamplingParams{.logit_bias = {}}}) {
    Pair pair(params);
    for (const bool story : {true, false}) {
      const Means m = Measure(pair, story ? Stories(pair) : Novel(pair));
      EXPECT_GE(m.positions, 2000);
      const double n = m.positions, drafts = m.drafts;
      std::printf(
          "temperature %.1f, top-p %.1f, %-7s %4d positions: rejection %.4f, same text %.4f (bound "
          "%.4f); %d drafts of 8: %.2f and %.2f accepted\n",
          params.temperature, params.top_p, story ? "stories" : "novel", m.positions,
          m.rejection / n, m.same_text / n, m.promised / n, m.drafts, m.rejection_8 / drafts,
          m.same_text_8 / drafts);
    }
  }
}

}  // namespace
}  // namespace thermocline::spec
