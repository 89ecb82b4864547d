// Bounds a shared step by the times of the steps before it.
#pragma once

#include <array>

namespace thermocline::sched {

// Decode thread only.
class StepBudget {
 public:
  // Seconds between two tokens of an answer that steps should keep to. 0: half as much again as a
  // step takes in which nobody reads; more, up to four times as much, while many tokens wait to be
  // read.
  explicit StepBudget(double target_s) : target_s_(target_s) {}

  // A shared step of `answers` tokens that were decoded or verified and `read` of prompts took
  // `seconds`.
  void Add(int answers, int read, double seconds);
  // A sequence decoded `tokens` alone in `seconds`, with drafts if it has any.
  void AddAlone(int tokens, double seconds);

  // The time of a token alone; 0: not known.
  double token_s() const { return alone_s_ > 0 ? alone_s_ : Decoding(1); }
  // Time of `answers` tokens alone over that of a step of them; 0: not known.
  double Gain(int answers) const;
  // Tokens of prompts beside `answers` tokens of answers, of `waiting` ones: as few as keep
  // the target; at least kReadLeast where there is none, or none keep it.
  int ReadTokens(int answers, int waiting, int most) const;
  // Returns how probable a drafted token must be to be worth verifying beside `answers` tokens: so
  // that it brings more tokens a second than they come. Above 1: none is.
  double DraftNeeds(int answers) const;
  // Answers that may share a step of `tenants` clients, at most `most`: so many that none of them
  // gets less than its part of the time would give it.
  int Answers(int tenants, int most) const;
  // True if `sequences` make more tokens together than in turns, as far as is known. Asked once a
  // step: what did not pay is tried again now and then.
  bool Pays(int sequences);

 private:
  static constexpr int kReadLeast = 8;
  static constexpr int kAnswersMax = 64;
  double Decoding(int answers) const;

  const double target_s_;
  std::array<double, kAnswersMax + 1> decoding_s_ = {};  // [answers] of a step without prompts
  double read_s_ = 0;                                    // of a further token that is read
  double alone_s_ = 0;                                   // of a token
  int in_turns_ = 0;                                     // steps since sharing did not pay
};

}  // namespace thermocline::sched
