// The decode thread's main loop: chooses which request computes next, which one releases memory for
// others, and which ones have ended.
//
// Sequences share steps where that pays (scheduler_shared.cc); otherwise one computes at a time, in
// turns. Begun sequences keep their KV cache between turns. When memory is short, the youngest
// sequence releases its KV cache and the oldest continues; a released cache is recomputed later (to
// the same bits if no mode is lossy). A new request begins when there is memory for its prompt and
// one turn.
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

// Decode thread only, except the figures.
class Scheduler {
 public:
  struct Params {
    DecodeLoop::Params loop;  // yield and make_room are set by the scheduler
    SharedLoop& shared;
    int step_tokens = 1;          // maximum answer tokens of a shared step; 1: sequences take turns
    bool mixes = true;            // prompts and answers share steps, where no mode is lossy
    int prefill_tokens_max = 64;  // maximum tokens of a shared step with prefill
    int parts_max = 64;           // maximum sequences of a shared step
    bool drafts = true;           // drafts from each sequence's own text, where they pay
    // True if drafts of a model influence which tokens are drawn (SpecAcceptance::kRejection).
    bool drafts_decide = false;
    double itl_target_s = 0;  // as StepBudget
    RequestQueue& queue;
    nn::KvPool& pool;
    const load::LoadedModel& model;
    int quantum_tokens = 32;  // 0 = a request runs to its end
    int sequences_max = 16;
    double reader_timeout_s = 30;  // 0 = none
    // on_idle is called when no request waits, on_turn between turns.
    std::function<void()> on_idle = {}, on_turn = {};
  };
  explicit Scheduler(const Params& params);
  ~Scheduler();

  // Returns once the queue is closed and every request has ended.
  void Run();

  // Readable from any thread.
  struct Figures {
    std::atomic<int> begun{0}, paused{0};
    std::atomic<std::int64_t> preemptions{0};
    std::atomic<std::size_t> kv_used_bytes{0};  // of the pool
    std::atomic<int> kv_tokens{0};              // used blocks of whole sequences, in tokens
    // Decaying means of request times; 0 = not known yet.
    std::atomic<double> sharing_gain{0};  // as StepBudget::Gain, of recent steps
    std::atomic<double> prompt_token_s{0}, token_s{0}, answer_tokens{0};
  };
  const Figures& figures() const { return figures_; }
  int sequences_max() const { return params_.sequences_max; }
  // RetryAfterS returns the seconds until a full queue has a place, that is until one of the queued
  // requests begins; WaitS those until one more request would begin.
  double RetryAfterS(const RequestQueue::Counts& queued) const;
  // The last argument is true if that request's tenant has no other request.
  double WaitS(const RequestQueue::Counts& queued, bool new_tenant) const;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;
  struct Choice {
    Sequence* sequence = nullptr;  // or
    std::uint64_t number = 0;      // the job number of a new request
  };
  static TurnOrder::Candidate CandidateOf(const Sequence& s);
  std::optional<Choice> Choose(const Sequence* current,
                               TurnOrder::Turn turn = TurnOrder::Turn::kEnds);
  // Runs the next step or turn; returns false once the queue is closed and every request has ended.
  bool RunNext();
  // Ends all begun sequences after an operation ran out of memory.
  void EndAll();
  // Begins the queued job `number`; null if it was cancelled meanwhile or there is no memory for
  // it.
  Sequence* BeginQueued(std::uint64_t number);
  Sequence* Begin(Job job);
  void RunTurn(Sequence& sequence);
  void UpdateEstimates(const Sequence& sequence);
  // Ends the other sequences that were cancelled, are late, or whose reader was slow for too long.
  // Resumes the sequences whose reader has caught up.
  void ExpireSequences();
  std::optional<SteadyClock::time_point> NextTimeout() const;
  bool ShouldYield(double spent, TurnOrder::Turn turn);
  bool MakeRoom(const nn::KvCount& blocks);
  void DropPassed(int blocks);
  // Returns true if there can be memory for a sequence of `tokens` tokens and one turn, where less
  // senior sequences release theirs. `self`: the sequence, if it has begun.
  bool Fits(const Sequence* self, Seniority seniority, std::size_t tokens) const;
  bool Fits(const Job& job) const;
  int RankOf(const std::string& tenant) const;
  bool MayBegin(const Request& request) const;
  bool IsBeingPrefilled(const Request& request) const;
  void Remove(const Sequence& sequence);
  void Publish();

  // The functions below are in scheduler_shared.cc.
  bool CanShareSteps(const Request& request) const;
  bool CanShareSteps(const Sequence& s) const;
  bool MayCompute(const Sequence& s) const;
  void BeginNewRequests();
  std::vector<Sequence*> Runnable() const;
  std::vector<Sequence*> Batch(const std::vector<Sequence*>& runnable,
                               const Sequence& leader) const;
  bool HasBatch();
  // Runs one shared step. Returns false if no sequences share a step now.
  bool RunSharedStep();
  Sequence* BatchLeader(const std::vector<Sequence*>& runnable);
  bool RunBatch(std::vector<Sequence*>& batch);
  std::vector<SharedLoop::SequenceStep> ComposeStep(std::vector<Sequence*>& batch);
  void MakeMasks(const std::vector<Sequence*>& batch);
  void Charge(const Sequence& s, double tokens, double sampling_s);
  void AddDrafts(int most, std::vector<SharedLoop::SequenceStep>& steps);
  int AnswersMax(const std::vector<Sequence*>& batch) const;
  int RoomForAnswers() const;
  void PutNextPrefillFirst(std::vector<Sequence*>& prefilling) const;
  void AddPrefill(std::vector<Sequence*>& prefilling, std::vector<SharedLoop::SequenceStep>& steps);
  bool Restore(Sequence& s);
  void MakeRoomFor(std::vector<SharedLoop::SequenceStep>& steps);
  void EndStep(const SharedLoop::SequenceStep& step);

  const Params params_;
  const AnswerSteps& answers_;
  DecodeLoop loop_;
  SharedLoop& shared_;
  StepBudget budget_;
  std::uint64_t batch_leader_ = 0;  // job number of the sequence whose batch shares steps
  int batch_steps_ = 0;             // steps that the batch has computed
  // True if the last step was prefill, where prefill and answers do not share steps.
  bool prefilled_last_ = false;
  double last_step_s_ = 0;   // seconds of the last shared step
  bool restores_ = false;    // a sequence was restored from flash before the last step
  bool masks_wait_ = false;  // sequences skipped the last step because of their masks
  TurnOrder order_;
  Sequences sequences_;          // in the order in which they began
  Sequence* current_ = nullptr;  // the sequence whose turn it is
  std::uint64_t turns_ = 0;
  double charged_at_ = 0;                 // tokens of this turn at the last call of Choose
  SteadyClock::time_point next_timeout_;  // of the sequences other than current_
  std::optional<Choice> next_;
  Figures figures_;
};

}  // namespace thermocline::sched
