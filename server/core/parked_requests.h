// Requests that wait so that a model which answers without a pause can become idle.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/core/load_queue.h"

namespace thermocline::server {

// A parked request holds its model, and does not count as one of its requests.
class ParkedRequests {
 public:
  struct Parked {
    std::shared_ptr<ServedModel> model;
    std::shared_ptr<Service> held;
    WaitingRequest waiting;
  };

  void Add(Parked parked) {
    parked_.push_back(std::move(parked));
    parked_.back().model->CountRequest(parked_.back().waiting.client, -1);
  }
  // Takes the requests that are not held back any more, or whose clients have left, or
  // `all`; they count again. Requires: ServedModels' mutex is held.
  std::vector<Parked> Take(LoadQueue& queue, bool all) {
    std::vector<Parked> taken;
    std::erase_if(parked_, [&](Parked& each) {
      if (!all && queue.HoldsBack(*each.model, each.waiting, 0)) return false;
      each.model->CountRequest(each.waiting.client, 1);
      taken.push_back(std::move(each));
      return true;
    });
    return taken;
  }

 private:
  std::vector<Parked> parked_;
};

}  // namespace thermocline::server
