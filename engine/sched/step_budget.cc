#include "engine/sched/step_budget.h"

namespace thermocline::sched {
namespace {

void UpdateEstimate(double& mean, double value) {
  mean = mean == 0 ? value : 0.9 * mean + 0.1 * value;
}

}  // namespace

void StepBudget::Add(int answers, int prefill, double seconds) {
  ++steps_;
  if (prefill == 0) {
    Measured& measured = decoding_[std::min(answers, kAnswersMax)];
    if (!IsKnown(answers)) measured.seconds = 0;
    measured.at = steps_;
    return UpdateEstimate(measured.seconds, seconds);
  }
  const double rest = seconds - (answers > 0 ? Decoding(answers) : 0);
  if (rest > 0) UpdateEstimate(prefill_s_, rest / prefill);
}

void StepBudget::AddAlone(int tokens, double seconds) {
  if (tokens > 0) UpdateEstimate(alone_s_, seconds / tokens);
}

double StepBudget::Gain(int answers) const {
  const double together = Of(answers).seconds;
  return together > 0 ? answers * alone_s_ / together : 0;
}

bool StepBudget::IsKnown(int answers) const {
  constexpr int kRemembered = 512;  // steps
  return Of(answers).seconds > 0 && steps_ - Of(answers).at <= kRemembered;
}

// Returns the time for the nearest number of answers that was measured.
double StepBudget::Decoding(int answers) const {
  answers = std::min(answers, kAnswersMax);
  for (int off = 0; off <= kAnswersMax; ++off) {
    if (answers - off >= 1 && IsKnown(answers - off)) return Of(answers - off).seconds;
    if (answers + off <= kAnswersMax && IsKnown(answers + off)) return Of(answers + off).seconds;
  }
  return alone_s_;
}

int StepBudget::PrefillTokens(int answers, int waiting, int most) const {
  constexpr double kLeast = 1.5, kMost = 4;  // times a step without prefill
  constexpr int kSteps = 8;                  // in which the waiting tokens should be prefilled
  if (answers == 0 || prefill_s_ == 0) return most;
  const double decoding = Decoding(answers);
  const double asked = decoding + waiting * prefill_s_ / kSteps;
  const double target =
      target_s_ > 0 ? target_s_ : std::clamp(asked, kLeast * decoding, kMost * decoding);
  const double tokens = std::max(0.0, (target - decoding) / prefill_s_);
  const bool kept = target_s_ > 0 && tokens >= 1;
  const int least = kept ? 1 : std::min(kPrefillTokensMin, most);
  return std::clamp(static_cast<int>(std::min(tokens, 1e6)), least, most);
}

double StepBudget::DraftProbabilityMin(int answers) const {
  constexpr int kApart = 4;  // tokens: closer steps differ too little in time
  const int fewer = std::max(1, answers - kApart), more = answers + kApart;
  const double slope = (Decoding(more) - Decoding(fewer)) / (more - fewer);
  const double step = Decoding(answers);
  const double token = slope > 0 ? slope : prefill_s_;
  return step > 0 && token > 0 ? token * answers / step : 0.5;
}

int StepBudget::AnswersMax(int tenants, int most) const {
  if (tenants < 2) return most;
  int answers = std::min(tenants, most);
  // The time alone is unknown until somebody was alone, and too long behind long contexts.
  const double twice = 2 * Decoding(answers);
  const double seconds = alone_s_ > 0 ? std::min(tenants * alone_s_, twice) : twice;
  // One more than was measured, so that a step of many is not taken to be as short as one of few.
  const auto known = [&] { return IsKnown(answers) || IsKnown(answers + 1); };
  while (answers < most && known() && Decoding(answers + 1) <= seconds) ++answers;
  return answers;
}

bool StepBudget::Pays(int sequences) {
  constexpr double kGain = 1.02;
  constexpr int kRetry = 512;  // steps
  const double together = Of(sequences).seconds;
  if (alone_s_ == 0 || together == 0 || kGain * together <= sequences * alone_s_) {
    in_turns_ = 0;
    return true;
  }
  if (++in_turns_ < kRetry) return false;
  in_turns_ = 0;
  decoding_[std::min(sequences, kAnswersMax)] = {};
  return true;
}

}  // namespace thermocline::sched
