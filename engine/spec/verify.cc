#include "engine/spec/verify.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::spec {
namespace {

// Writes max(0, p - q) into `residual`, tokens ascending. The weights have room for the tokens of
// p: they hold p - q by token before the rest is moved to the front.
void Residual(const sampling::Distribution& p, const sampling::Distribution& q,
              sampling::Distribution& residual) {
  residual.Clear();
  const int last = *std::max_element(p.tokens.begin(), p.tokens.end());
  auto& weights = residual.weights;
  weights.assign(last + 1U, 0);
  for (std::size_t i = 0; i < p.size(); ++i) weights[p.tokens[i]] = p.weights[i] / p.total;
  for (std::size_t i = 0; i < q.size(); ++i)
    if (q.tokens[i] <= last) weights[q.tokens[i]] -= q.weights[i] / q.total;
  for (int token = 0; token < base::IntSize(weights); ++token) {
    const double weight = weights[token];
    if (weight <= 0) continue;
    weights[residual.tokens.size()] = weight;
    residual.tokens.push_back(token);
    residual.total += weight;
  }
  weights.resize(residual.tokens.size());
}

}  // namespace

Verdict VerifyProposal(const sampling::Distribution& target, const Proposal& proposal,
                       Acceptance acceptance, const sampling::RandomSource& random,
                       std::uint64_t position, sampling::Distribution& scratch) {
  const sampling::Distribution& draft = proposal.distribution;
  if (acceptance == Acceptance::kSameText || draft.size() == 0) {
    const int token = DrawToken(target, random, position);
    return {token == proposal.token, token};
  }
  const double p = target.Probability(proposal.token), q = draft.Probability(proposal.token);
  if (p >= q || random.Accept(p / q, position)) return {true, proposal.token};
  Residual(target, draft, scratch);
  if (scratch.size() == 0) {  // p equals q except for rounding
    if (p > 0) return {true, proposal.token};
    return {false, random.Pick(target, position, sampling::Stream::kCorrection)};
  }
  return {false, random.Pick(scratch, position, sampling::Stream::kCorrection)};
}

int DrawToken(const sampling::Distribution& target, const sampling::RandomSource& random,
              std::uint64_t position) {
  return random.Pick(target, position, sampling::Stream::kToken);
}

}  // namespace thermocline::spec
