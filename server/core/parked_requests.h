// Requests that wait so that a model which answers without a pause can become idle.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/core/model_list.h"

namespace thermocline::server {

// A waiting model holds back new requests of the others this long after its first try. Together
// with the time that models are waited for at all, each gets a turn.
inline constexpr std::chrono::seconds kHoldBackAfter{5};
// Afterwards it holds back nobody for this long, lest its requests stop the others' again and
// again.
inline constexpr std::chrono::seconds kHoldBackPause{30};

// True if a model of the queue has waited for so long, `model` may sleep, and others could use its
// memory. Requires: ServedModels' mutex is held, as below.
inline bool IsHeldBack(const std::deque<std::shared_ptr<ServedModel>>& queue,
                       const ServedModel& model) {
  const auto now = ServedModel::Clock::now();
  if (model.pinned || !model.loaded()) return false;
  for (const auto& other : queue)
    if (other.get() != &model && other->tried_at >= 0 && now > other->busy_since + kHoldBackAfter &&
        now > other->gave_up_at + kHoldBackPause)
      return true;
  return false;
}

// A parked request holds its model, and does not count as one of its requests.
class ParkedRequests {
 public:
  struct Parked {
    std::shared_ptr<ServedModel> model;
    std::shared_ptr<Service> held;
    std::function<void(const Status&)> woken;
  };

  void Add(Parked parked) {
    --parked.model->requests;
    parked_.push_back(std::move(parked));
  }
  // Takes the requests whose models are not held back any more, or `all`; they count again.
  std::vector<Parked> Take(const std::deque<std::shared_ptr<ServedModel>>& queue, bool all) {
    std::vector<Parked> taken;
    std::erase_if(parked_, [&](Parked& each) {
      if (!all && IsHeldBack(queue, *each.model)) return false;
      ++each.model->requests;
      taken.push_back(std::move(each));
      return true;
    });
    return taken;
  }

 private:
  std::vector<Parked> parked_;
};

}  // namespace thermocline::server
