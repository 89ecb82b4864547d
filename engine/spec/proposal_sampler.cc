#include "engine/spec/proposal_sampler.h"

#include <algorithm>

namespace thermocline::spec {
namespace {

// The confidence class for a lead of the first token over the second, in units of the (perturbed)
// logits.
int ConfidenceOf(double lead) {
  static constexpr double kFrom[kConfidenceClasses] = {0,   0.25, 0.5, 0.75, 1.0, 1.5,
                                                       2.0, 2.5,  3.0, 4.0,  5.0, 7.0};
  int level = 0;
  while (level + 1 < kConfidenceClasses && lead >= kFrom[level + 1]) ++level;
  return level;
}

}  // namespace

void ProposalSampler::Begin(std::span<const int> prompt, const SamplingParams& params, int width,
                            bool distributions) {
  sampler_.Begin(params, prompt);
  width_ = std::min(width, kAlternatesMax);
  distributions_ = distributions && params.temperature > 0;
  ranked_.reserve(kAlternatesMax + 2);
}

void ProposalSampler::Accept(std::span<const int> generated) {
  const auto have = sampler_.accepted();
  const auto differ = std::mismatch(have.begin(), have.end(), generated.begin(), generated.end());
  const std::size_t common = differ.first - have.begin();
  while (sampler_.accepted().size() > common) sampler_.Retract();
  for (const int token : generated.subspan(common)) sampler_.Accept(token);
}

void ProposalSampler::Draw(std::span<const float> logits, int position, Proposal& proposal) {
  const sampling::Distribution& from = sampler_.Compute(logits);
  proposal.distribution.Clear();
  if (sampler_.params().temperature == 0) return DrawGreedy(proposal);
  DrawSampled(from, position, proposal);
  if (!distributions_) return;
  proposal.distribution = from;
}

void ProposalSampler::DrawGreedy(Proposal& proposal) {
  sampling::Sampler::Scored first[kAlternatesMax + 1];
  const int count = sampler_.Top(std::max(width_, 1) + 1, first);
  proposal.token = first[0].token;
  proposal.confidence = count > 1 ? ConfidenceOf(double{first[0].logit} - double{first[1].logit})
                                  : kConfidenceClasses - 1;
  proposal.num_alternates = std::min(width_, count - 1);
  for (int i = 0; i < proposal.num_alternates; ++i) proposal.alternates[i] = first[i + 1].token;
}

void ProposalSampler::DrawSampled(const sampling::Distribution& from, int position,
                                  Proposal& proposal) {
  const sampling::RandomSource& random = random_ != nullptr ? *random_ : sampler_.random_source();
  const std::uint64_t at = position;
  const auto stream = sampling::Stream::kToken;
  const auto wanted = static_cast<std::size_t>(width_) + 1;
  random.Rank(from, at, stream, std::max<std::size_t>(wanted, 2), ranked_);
  proposal.token = ranked_[0];
  proposal.confidence = ranked_.size() > 1
                            ? ConfidenceOf(random.Lead(from, at, stream, ranked_[0], ranked_[1]))
                            : kConfidenceClasses - 1;
  // Rejection draws a new token in place of a rejected one.
  if (distributions_) random.Rank(from, at, sampling::Stream::kCorrection, wanted, ranked_);
  proposal.num_alternates = 0;
  for (const int token : ranked_) {
    if (token == proposal.token || proposal.num_alternates == width_) continue;
    proposal.alternates[proposal.num_alternates++] = token;
  }
}

}  // namespace thermocline::spec
