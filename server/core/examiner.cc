#include "server/core/examiner.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "engine/base/log.h"

namespace thermocline::server {

Examiner::Examiner(Params params) : params_(std::move(params)), thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "examiner");
}

Examiner::~Examiner() {
  Look();
  thread_.join();
}

void Examiner::Look() {
  const base::MutexLock lock(mutex_);
  look_ = true;
  looked_.NotifyAll();
}

void Examiner::Run() {
  constexpr std::chrono::seconds kInterval{1};  // files may change without a word
  while (!params_.cancelled) {
    if (const auto model = params_.next()) {
      try {
        model->service.Examine([this] { return params_.cancelled.load(); });
      } catch (const std::exception& error) {  // memory was lacking
        base::LogWarning("the model ", model->service.model_name(),
                         " was not examined: ", error.what());
      }
      params_.on_end();
      continue;
    }
    base::MutexLock lock(mutex_);
    if (!std::exchange(look_, false) && !params_.cancelled)
      looked_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kInterval);
  }
}

}  // namespace thermocline::server
