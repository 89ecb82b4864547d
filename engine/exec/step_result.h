// What a step of the transformer gives: a value, or why there is none and what is lost with it.
#pragma once

#include <utility>

#include "engine/base/status.h"

namespace thermocline::exec {

struct StepError {
  Status status;
  // A device failed, and with it what it held of the KV cache, of every sequence: whoever keeps
  // sequences or prefixes forgets them. The next step must begin a sequence.
  bool kv_cache_lost = false;
};

// A Result that says whether the KV cache is lost. Handed on as a mere Result, it is an error like
// any other.
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
