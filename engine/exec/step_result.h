// The result of a step of the transformer: a value, or an error that also says whether the KV cache
// is lost.
#pragma once

#include <utility>

#include "engine/base/status.h"

namespace thermocline::exec {

struct StepError {
  Status status;
  // A device failed, and its part of every sequence's KV cache is lost. Owners of KV caches and
  // prefixes must clear them. The next step must begin a sequence.
  bool kv_cache_lost = false;
};

// Decode thread only. A caller that owns the only KV cache, as a tool does, may use it as a Result.
template <typename T>
class [[nodiscard]] StepResult : public Result<T> {
 public:
  using Result<T>::Result;
  // Requires: not OK.
  StepResult(StepError error)  // NOLINT: implicit as Result's
      : Result<T>(std::move(error.status)), kv_cache_lost_(error.kv_cache_lost) {}

  StepError error() const { return {this->status(), kv_cache_lost_}; }
  bool kv_cache_lost() const { return kv_cache_lost_; }

 private:
  bool kv_cache_lost_ = false;
};

}  // namespace thermocline::exec
