#include "server/core/load_queue.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "server/core/sleep_choice.h"

namespace thermocline::server {
namespace {

// A model waits this long before it holds back others; then how long it does, and the pause.
constexpr std::chrono::seconds kHoldBackAfter{5}, kHoldBackFor{4}, kHoldBackPause{16};

std::set<std::string> ClientsOf(const ServedModel& model) {
  std::set<std::string> clients;
  for (const WaitingRequest& each : model.waiting) clients.insert(each.client);
  return clients;
}

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

void LoadQueue::AddWaitedInVain(const Model& model) {
  const auto now = Clock::now();
  std::erase_if(in_vain_, [&](const Waiting& each) {
    return each.until < now || each.model == model || each.model->loaded();
  });
  in_vain_.push_back({model, model->busy_since, now + kBusyWait, ClientsOf(*model)});
}

std::vector<LoadQueue::Waiting> LoadQueue::AllWaiting() const {
  std::vector<Waiting> waiting;
  for (const Model& model : queue_)
    if (model->tried_at >= 0)
      waiting.push_back({model, model->busy_since, Clock::time_point::max(), ClientsOf(*model)});
  for (const Waiting& each : in_vain_)
    if (!each.model->loaded() && Clock::now() < each.until) waiting.push_back(each);
  return waiting;
}

bool LoadQueue::WaitsForBusy() const {
  return std::ranges::any_of(queue_, [](const Model& model) {
    return model->tried_at >= 0 && Clock::now() > model->busy_since + kHoldBackAfter;
  });
}

bool LoadQueue::HoldsBack(const ServedModel& model, const std::string& client, int counted) {
  if (model.pinned || !model.loaded() || (queue_.empty() && in_vain_.empty())) return false;
  const auto now = Clock::now();
  const auto running = model.clients.find(client);
  const bool keeps_busy = running != model.clients.end() && running->second > counted;
  bool due = false;
  for (const Waiting& each : AllWaiting()) {
    if (each.model.get() == &model || now <= each.since + kHoldBackAfter) continue;
    // One that is answered by the model itself is who it should wait for.
    const bool for_another = std::ranges::any_of(each.clients, [&](const std::string& waiting) {
      return waiting != client && !model.clients.contains(waiting);
    });
    if (keeps_busy && for_another) return true;
    due = due || each.model->queued;
  }
  if (!due) return false;
  if (now > held_back_at_ + (kHoldBackFor + kHoldBackPause)) held_back_at_ = now;
  return now < held_back_at_ + kHoldBackFor;
}

std::vector<WaitingRequest> LoadQueue::TakeEnded() {
  std::vector<WaitingRequest> ended;
  const auto waiting = queue_;
  for (const Model& model : waiting) {
    const std::size_t before = ended.size();
    std::erase_if(model->waiting, [&](WaitingRequest& each) {
      const bool ends = each.has_left() || each.is_late();
      if (ends) ended.push_back(std::move(each));
      return ends;
    });
    if (ended.size() > before && model->waiting.empty()) Remove(*model);
  }
  return ended;
}

}  // namespace thermocline::server
