#include "engine/sched/text_vectors.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::sched {
namespace {

// Parts of an encoder's text have few tokens if these see many, so that a part delays other clients
// little.
constexpr int kPartTokensMin = 32, kPairsOfPart = 1 << 18;

Stop Failed(Sequence& s, exec::StepError error) {
  s.error = std::move(error);
  return Stop::kError;
}

}  // namespace

Stop TextVectors::Send(Sequence& s) const {
  const EmbedRequest& embed = *s.job.request.embed;
  const model::ModelConfig& config = p_.transformer.config();
  const bool encoder = config.architecture->encoder;
  const Pooling pooling = config.ranks() && config.ranks_by_mean ? Pooling::kMean : embed.pooling;
  s.usage.phase = Phase::kPrefill;
  for (; s.embedded < embed.ends.size(); ++s.embedded) {
    const int begin = s.embedded == 0 ? 0 : embed.ends[s.embedded - 1];
    const int end = embed.ends[s.embedded];
    const auto text = std::span<const int>(s.job.request.prompt).subspan(begin, end - begin);
    while (s.usage.prefill_tokens < end || p_.cache.length() == 0) {
      if (p_.cache.length() == 0) {  // a text restarts after its memory was reclaimed
        s.pooling.Begin(pooling, config.hidden_size);
        s.text_progress = {};
        s.usage.prefill_tokens = begin;
      }
      const Stop why = encoder ? EncoderStep(s, text) : Step(s, text);
      if (why != Stop::kNone) return why;
    }
    s.text_progress = {};
    const Stop why = Emit(s);
    if (why != Stop::kNone) return why;
    p_.cache.Clear();
  }
  return Stop::kLength;
}

Stop TextVectors::Step(Sequence& s, std::span<const int> text) const {
  const int at = p_.cache.length();
  const int count = std::min(p_.tokens_max(), base::IntSize(text) - at);
  const Stop why = p_.before_step(s, count);
  if (why != Stop::kNone) return why;
  const StepTimer timer;
  const auto computed =
      p_.transformer.Forward(text.subspan(at, count), p_.cache, exec::Transformer::Logits::kNone,
                             exec::Transformer::Step::kPrefill);
  if (!computed.ok()) return Failed(s, computed.error());
  s.pooling.Add(p_.transformer.HiddenStates(count));
  if (p_.steps != nullptr) timer.Stop(*p_.steps, p_.steps->prefill, count);
  s.usage.prefill_tokens += count;
  p_.charge(count, timer.elapsed());
  return Stop::kNone;
}

// Tokens see those behind them, so that a text goes through the layers as a whole.
Stop TextVectors::EncoderStep(Sequence& s, std::span<const int> text) const {
  const int length = base::IntSize(text);
  const int most = std::min(p_.tokens_max(), std::max(kPartTokensMin, kPairsOfPart / length));
  if (p_.transformer.MayPause(s.text_progress)) {
    const Stop why = p_.before_step(s, p_.cache.length() == 0 ? length : 0);
    if (why != Stop::kNone) return why;
  } else if (!p_.wanted(s)) {
    return Stop::kCancelled;
  }
  const StepTimer timer;
  const auto done = p_.transformer.ForwardText(text, p_.cache, s.text_progress, most);
  if (!done.ok()) return Failed(s, done.error());
  if (*done > 0) s.pooling.Add(p_.transformer.HiddenStates(*done));
  if (p_.steps != nullptr) timer.Stop(*p_.steps, p_.steps->prefill, *done);
  s.usage.prefill_tokens += *done;
  p_.charge_encoder(timer.elapsed());
  return Stop::kNone;
}

Stop TextVectors::Emit(Sequence& s) const {
  exec::Transformer& transformer = p_.transformer;
  if (s.job.request.embed->pooling != Pooling::kRank)
    return AnswerSteps::EmitEmbedding(s, transformer.VectorOf(s.pooling.Take()));
  const bool of_mean = transformer.config().ranks_by_mean;
  const float score = transformer.RankScore(of_mean ? s.pooling.Mean() : s.pooling.First());
  return AnswerSteps::EmitEmbedding(s, {score});
}

}  // namespace thermocline::sched
