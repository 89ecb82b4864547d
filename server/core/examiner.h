// Examines the models that merely lie in a folder, on a thread of its own, so that no load waits
// for it: those that requests wait for, then the others.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "engine/base/mutex.h"
#include "server/core/model_list.h"

namespace thermocline::server {

// Thread-safe.
class Examiner {
 public:
  struct Params {
    // Returns the model to examine next; nullptr: there is none now. On the examiner's thread.
    std::function<std::shared_ptr<ServedModel>()> next;
    std::function<void()> on_end;        // called after each examination
    const std::atomic<bool>& cancelled;  // ends an examination, and the thread
  };

  // Starts the thread.
  explicit Examiner(Params params);
  // Requires: `cancelled` is true.
  ~Examiner();
  Examiner(const Examiner&) = delete;
  Examiner& operator=(const Examiner&) = delete;

  // There may be another model to examine.
  void Look();

 private:
  void Run();

  const Params params_;
  base::Mutex mutex_;
  base::Condition looked_;
  bool look_ GUARDED_BY(mutex_) = true;
  std::thread thread_;
};

}  // namespace thermocline::server
