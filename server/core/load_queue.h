// The models that wait to be loaded, and what they hold back.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/core/model_list.h"

namespace thermocline::server {

// A client that does not read for so long keeps its model busy no longer while others wait for it.
inline constexpr std::chrono::seconds kReaderPatience{8};

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
  // A model waits at most so long for others, which answer requests, to become idle.
  static constexpr std::chrono::seconds kBusyWait{30};
  // Returns the first model that need not be examined and is worth a try (IsWorthTrying), or has
  // waited for so long that its load has to fail; nullptr: none.
  Model NextToLoad(const ModelList::Models& all, std::int64_t total, int sleeps) const;
  // Returns a waiting model that wants to be examined: one whose clients have had the fewest
  // examinations, so that none of them keeps the others waiting with many models. nullptr: none.
  Model NextToExamine();
  // True if a client's new request of a loaded model has to wait, because another model has waited
  // for some seconds for its memory. Models that answer without a pause become idle that way. A
  // client that the model answers already waits while another client does so, or has lately done so
  // in vain; the others for some seconds with pauses, whichever models wait, so that nobody stops
  // them for long. `counted`: requests of the client among the model's that do not go on yet.
  bool HoldsBack(const ServedModel& model, const std::string& client, int counted);
  // The same of a request that waits; false if its client has left or its time is over.
  bool HoldsBack(const ServedModel& model, const WaitingRequest& waiting, int counted) {
    return !waiting.has_left() && !waiting.is_late() && HoldsBack(model, waiting.client, counted);
  }
  // True if a model has waited for some seconds for busy ones.
  bool WaitsForBusy() const;
  // Notes that a model was not loaded, because others were busy for too long.
  void AddWaitedInVain(const Model& model);
  // Takes the requests whose clients have left or whose time is over. A model for which nobody
  // waits any more is removed.
  std::vector<WaitingRequest> TakeEnded();

 private:
  int ExaminedFor(const ServedModel& model) const;

  std::deque<Model> queue_;
  // A model that waits for busy ones, or has lately waited in vain: its clients will ask again.
  struct Waiting {
    Model model;
    Clock::time_point since, until;
    std::set<std::string> clients;
  };
  std::vector<Waiting> AllWaiting() const;

  std::map<std::string, int> examined_;  // examinations by client
  std::vector<Waiting> in_vain_;
  Clock::time_point held_back_at_ = Clock::time_point::min();  // the last time that it began
};

}  // namespace thermocline::server
