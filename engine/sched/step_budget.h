// Limits a shared step's tokens by the measured times of earlier steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace thermocline::sched {

// Decode thread only.
class StepBudget {
 public:
  // `target_s`: the seconds between two tokens of an answer that steps should keep to. 0: 1.5 times
  // the time of a step without prefill, and up to 4 times while many prompt tokens wait.
  explicit StepBudget(double target_s) : target_s_(target_s) {}

  // Records a shared step of `answers` decoded or verified tokens and `prefill` prompt tokens that
  // took `seconds`.
  void Add(int answers, int prefill, double seconds);
  // Records that a sequence decoded `tokens` alone in `seconds`, including any drafts.
  void AddAlone(int tokens, double seconds);

  // Returns the seconds per token of a sequence alone; 0: not known.
  double token_s() const { return alone_s_ > 0 ? alone_s_ : Decoding(1); }
  // Returns the time of `answers` tokens computed alone over that of one step for all; 0: not
  // known.
  double Gain(int answers) const;
  // Returns the prompt tokens to prefill beside `answers` tokens of answers, of `waiting` ones: as
  // many as the target allows; at least kPrefillTokensMin if there is no target or it cannot be
  // kept.
  int PrefillTokens(int answers, int waiting, int most) const;
  // Returns the probability that a draft token must have to be worth verifying beside `answers`
  // tokens, so that it raises the tokens per second. Above 1: no draft is worth it.
  double DraftProbabilityMin(int answers) const;
  // Returns the number of answers that may share a step of `tenants` clients, at most `most`: as
  // many as leave each client no slower than its share of the time alone, and than half as fast as
  // in a step with one answer of each.
  int AnswersMax(int tenants, int most) const;
  // Returns true if `sequences` decode more tokens per second together than in turns, as far as is
  // known. Called once per step: sharing that did not pay is retried now and then.
  bool Pays(int sequences);

 private:
  static constexpr int kPrefillTokensMin = 8;
  static constexpr int kAnswersMax = 64;
  // The mean seconds of steps without prefill.
  struct Measured {
    double seconds = 0;   // 0: none yet
    std::int64_t at = 0;  // the number of the last such step
  };
  const Measured& Of(int answers) const { return decoding_[std::min(answers, kAnswersMax)]; }
  // False once many steps have passed: contexts have grown or ended since.
  bool IsKnown(int answers) const;
  double Decoding(int answers) const;

  const double target_s_;
  std::array<Measured, kAnswersMax + 1> decoding_ = {};  // [answers]
  std::int64_t steps_ = 0;
  double prefill_s_ = 0;  // seconds of one more prefilled token
  double alone_s_ = 0;    // seconds per token of a sequence alone
  int in_turns_ = 0;      // steps since sharing did not pay
};

}  // namespace thermocline::sched
