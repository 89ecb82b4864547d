// The decode thread's work: which request computes next, which makes room for others, which is
// over.
//
// Sequences share steps where that pays (scheduler_shared.cc); else one computes at a time, in
// turns. Begun sequences keep their keys and values between turns; where
// memory is short the youngest gives its own up, oldest first goes on, and they are computed anew
// (to the same bits where no mode loses any). A newcomer is begun while there is memory for its
// prompt and a turn.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/sched/decode_loop.h"
#include "engine/sched/request_queue.h"
#include "engine/sched/shared_loop.h"
#include "engine/sched/step_budget.h"
#include "engine/sched/turn_order.h"

namespace thermocline::sched {

// Decode thread only, but for the figures.
class Scheduler {
 public:
  struct Params {
    DecodeLoop::Params loop;  // its yield and make_room are the scheduler's
    SharedLoop& shared;
    int step_tokens = 1;  // answers that may share a step; 1: sequences take turns
    bool mixes = true;    // prompts are read in the steps of answers, where no mode loses anything
    int read_tokens_max = 64;  // of a shared step
    int parts_max = 64;        // sequences of one
    bool drafts = true;        // from the text of each, where they are worth it
    // Tokens that are drawn with drafts of a model depend on these (SpecAcceptance::kRejection).
    bool drafts_decide = false;
    double itl_target_s = 0;  // as StepBudget
    RequestQueue& queue;
    nn::KvPool& pool;
    const load::LoadedModel& model;
    int quantum_tokens = 32;  // 0 = a request runs to its end
    int sequences_max = 16;
    double reader_timeout_s = 30;  // 0 = none
    // Called when nothing waits, and between turns.
    std::function<void()> on_idle = {}, on_turn = {};
  };
  explicit Scheduler(const Params& params);
  ~Scheduler();

  // Until the queue is closed and every request has ended.
  void Run();

  // Any thread.
  struct Figures {
    std::atomic<int> begun{0}, paused{0};
    std::atomic<std::int64_t> preemptions{0};
    std::atomic<std::size_t> kv_used_bytes{0};  // of the pool
    std::atomic<int> kv_tokens{0};              // the same, in blocks of whole sequences
    // Decaying means of what requests took; 0 = not known yet.
    std::atomic<double> sharing_gain{0};  // as StepBudget::Gain, of the last steps
    std::atomic<double> prompt_token_s{0}, token_s{0}, answer_tokens{0};
  };
  const Figures& figures() const { return figures_; }
  int sequences_max() const { return params_.sequences_max; }
  // Seconds until one of `waiting` requests with prompts of `prompt_tokens` tokens in all is begun,
  // that is until there is a place in a full queue; and until another one would be begun.
  double RetryAfterS(const RequestQueue::Counts& queued) const;
  // `stranger`: that one's tenant has no other request.
  double WaitS(const RequestQueue::Counts& queued, bool stranger) const;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;
  struct Choice {
    Sequence* sequence = nullptr;  // or
    std::uint64_t number = 0;      // of a newcomer
  };
  static TurnOrder::Candidate CandidateOf(const Sequence& s);
  std::optional<Choice> Choose(const Sequence* current);
  // Chooses the next step; false: the queue is closed and every request has ended.
  bool RunNext();
  // Ends all that is begun, in the middle of whatever ran out of memory.
  void GiveUp();
  // Makes a sequence of a newcomer; null: it was cancelled meanwhile, or there is no memory for it.
  Sequence* Enter(std::uint64_t number);
  Sequence* Begin(Job job);
  void Turn(Sequence& sequence);
  void Learn(const Sequence& sequence);
  // Ends those of the others that were cancelled, are late, or whose reader was slow for too long;
  // wakes those whose reader has read.
  void Tend();
  std::optional<SteadyClock::time_point> NextTimeout() const;
  // `soon`: to anyone who waits, though the turn is not over.
  bool WantsToYield(double spent, bool soon);
  bool MakeRoom(const nn::KvCount& blocks);
  void DropPassed(int blocks);
  // True if memory can be had for a sequence of `tokens` tokens and a turn of it: less senior ones
  // give theirs. `self`: it, once it is begun.
  bool Fits(const Sequence* self, Seniority seniority, std::size_t tokens) const;
  bool Fits(const Job& newcomer) const;
  int RankOf(const std::string& tenant) const;
  bool MayBegin(const Request& request) const;
  bool IsReadNow(const Request& request) const;
  void Remove(const Sequence& sequence);
  void Publish();

  // In scheduler_shared.cc.
  bool Shares(const Request& request) const;
  bool Shares(const Sequence& s) const;
  bool MayCompute(const Sequence& s) const;
  void BeginNewcomers();
  std::vector<Sequence*> Runnable() const;
  std::vector<Sequence*> Company(const std::vector<Sequence*>& runnable,
                                 const Sequence& leader) const;
  bool HasCompany();
  // False: nobody shares a step now.
  bool StepTogether();
  Sequence* Leader(const std::vector<Sequence*>& runnable);
  bool StepOf(std::vector<Sequence*>& company);
  std::vector<SharedLoop::Share> Compose(std::vector<Sequence*>& company);
  void MakeMasks(const std::vector<Sequence*>& company);
  void Charge(const Sequence& s, double tokens, double sampling_s);
  void AddDrafts(int widest, std::vector<SharedLoop::Share>& shares);
  int Sharing(const std::vector<Sequence*>& company) const;
  int RoomForAnswers() const;
  void FirstToRead(std::vector<Sequence*>& readers) const;
  void AddReaders(std::vector<Sequence*>& readers, std::vector<SharedLoop::Share>& shares);
  void MakeRoomFor(std::vector<SharedLoop::Share>& shares);
  void EndStep(const SharedLoop::Share& share);

  const Params params_;
  const AnswerSteps& answers_;
  DecodeLoop loop_;
  SharedLoop& shared_;
  StepBudget budget_;
  std::uint64_t leader_ = 0;  // the number of whose company shares steps
  int together_ = 0;          // steps of it
  bool read_last_ = false;    // where prompts are not read in the steps of answers
  double last_step_s_ = 0;    // of shared ones
  bool masks_wait_ = false;   // of sequences that sat the last step out
  TurnOrder order_;
  Sequences sequences_;          // in the order they were begun
  Sequence* current_ = nullptr;  // whose turn it is
  std::uint64_t turns_ = 0;
  double asked_at_ = 0;                   // tokens of this turn, when others were last asked for
  SteadyClock::time_point next_timeout_;  // of those whose turn it is not
  std::optional<Choice> next_;
  Figures figures_;
};

}  // namespace thermocline::sched
