// The models that wait to be loaded, and what they hold back.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "server/core/model_list.h"

namespace thermocline::server {

// Requires for all: ServedModels' mutex is held.
class LoadQueue {
 public:
  using Model = std::shared_ptr<ServedModel>;
  using Clock = ServedModel::Clock;

  bool empty() const { return queue_.empty(); }
  auto begin() const { return queue_.begin(); }
  auto end() const { return queue_.end(); }
  // Does nothing if the model waits already.
  void Add(const Model& model);
  void Remove(ServedModel& model);
  // True if new requests of a loaded model have to wait, because another model has waited for some
  // seconds for its memory. Models that answer without a pause become idle that way. It lasts some
  // seconds and then pauses, whichever models wait, so that nobody stops the others for long.
  bool HoldsBack(const ServedModel& model);
  // Takes the requests whose clients have left. A model for which nobody waits any more is removed.
  std::vector<WaitingRequest> TakeGone();

 private:
  std::deque<Model> queue_;
  Clock::time_point held_back_at_ = Clock::time_point::min();  // the last time that it began
};

}  // namespace thermocline::server
