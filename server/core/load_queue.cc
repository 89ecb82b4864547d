#include "server/core/load_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/core/sleep_choice.h"

namespace thermocline::server {
namespace {

// A model waits this long before it holds back others; then how long it does, and the pause.
constexpr std::chrono::seconds kHoldBackAfter{5}, kHoldBackFor{4}, kHoldBackPause{16};

}  // namespace

void LoadQueue::Add(const Model& model) {
  if (!model->queued) queue_.push_back(model);
  model->queued = true;
}

void LoadQueue::Remove(ServedModel& model) {
  std::erase_if(queue_, [&](const Model& each) { return each.get() == &model; });
  model.queued = false;
  model.tried_at = -1;
}

LoadQueue::Model LoadQueue::NextToLoad(const ModelList::Models& all, std::int64_t total,
                                       int sleeps) const {
  for (const Model& model : queue_) {
    if (model->service.WantsExamination()) continue;
    if (IsWorthTrying(all, *model, total, sleeps) || Clock::now() > model->busy_since + kBusyWait)
      return model;
  }
  return nullptr;
}

int LoadQueue::ExaminedFor(const ServedModel& model) const {
  int fewest = std::numeric_limits<int>::max();
  for (const WaitingRequest& each : model.waiting) {
    const auto found = examined_.find(each.client);
    fewest = std::min(fewest, found == examined_.end() ? 0 : found->second);
  }
  return fewest;
}

LoadQueue::Model LoadQueue::NextToExamine() {
  constexpr std::size_t kClientsMax = 1024;
  Model next;
  for (const Model& model : queue_) {
    if (!model->service.WantsExamination()) continue;
    if (next == nullptr || ExaminedFor(*model) < ExaminedFor(*next)) next = model;
  }
  if (examined_.size() > kClientsMax) examined_.clear();
  if (next != nullptr)
    for (const WaitingRequest& each : next->waiting) ++examined_[each.client];
  return next;
}

bool LoadQueue::HoldsBack(const ServedModel& model) {
  if (model.pinned || !model.loaded()) return false;
  const auto now = Clock::now();
  const bool due = std::any_of(queue_.begin(), queue_.end(), [&](const Model& other) {
    return other.get() != &model && other->tried_at >= 0 &&
           now > other->busy_since + kHoldBackAfter;
  });
  if (!due) return false;
  if (now > held_back_at_ + (kHoldBackFor + kHoldBackPause)) held_back_at_ = now;
  return now < held_back_at_ + kHoldBackFor;
}

std::vector<WaitingRequest> LoadQueue::TakeGone() {
  std::vector<WaitingRequest> gone;
  const auto waiting = queue_;
  for (const Model& model : waiting) {
    const std::size_t before = gone.size();
    std::erase_if(model->waiting, [&](WaitingRequest& each) {
      const bool left = each.gone && each.gone();
      if (left) gone.push_back(std::move(each));
      return left;
    });
    if (gone.size() > before && model->waiting.empty()) Remove(*model);
  }
  return gone;
}

}  // namespace thermocline::server
