// The models that are being fetched for clients.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/mutex.h"

namespace thermocline::server {

class ModelPull;

// Thread-safe.
class RunningPulls {
 public:
  // False: there are as many as may be, or the daemon drains.
  bool Add(ModelPull* pull) EXCLUDES(mutex_) {
    constexpr std::size_t kMax = 4;
    const base::MutexLock lock(mutex_);
    if (ended_ || list_.size() >= kMax) return false;
    list_.push_back(pull);
    return true;
  }
  void Remove(ModelPull* pull) EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    std::erase(list_, pull);
  }
  // For a drain: cancels all, and takes no more.
  void End() EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::vector<ModelPull*> list_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
