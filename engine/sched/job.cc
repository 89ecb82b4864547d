#include "engine/sched/job.h"

#include <algorithm>
#include <cmath>

namespace thermocline::sched {

Status LateStatus(const Job& job, const Usage& usage, std::size_t read, bool waited_for_flash) {
  const double allowed =
      std::round(std::max(0.0, Seconds(*job.request.deadline - job.submitted)) * 1000) / 1000;
  const char* device = waited_for_flash ? ", waiting for the flash device" : "";
  const auto late = [&](auto&&... doing) {
    return Status(StatusCode::kDeadlineExceeded,
                  StrCat("the request did not end within ", allowed, " s: it was ", doing...));
  };
  switch (usage.phase) {
    case Phase::kQueued:
      return late("in the queue for ", usage.queue_s, " s");
    case Phase::kPrefill:
      return late("reading the prompt, after ", read, " of ", usage.prompt_tokens, " tokens",
                  device, " (queue ", usage.queue_s, " s)");
    case Phase::kDecode:
      break;
  }
  return late("writing the answer, after ", usage.completion_tokens, " tokens", device, " (queue ",
              usage.queue_s, " s, prompt ", usage.prefill_s, " s)");
}

void FinishEarly(Job& job, Usage usage, const std::string& rest, Status error) {
  if (job.channel->cancelled()) {
    usage.cause = job.channel->cause();
    usage.cancel_s = Seconds(SteadyClock::now() - job.channel->cancelled_at());
  } else if (error.code() == StatusCode::kDeadlineExceeded) {
    usage.cause = CancelCause::kDeadline;
    usage.cancel_s = std::max(0.0, Seconds(SteadyClock::now() - *job.request.deadline));
  }
  const FinishReason reason = error.ok() ? FinishReason::kCancelled : FinishReason::kError;
  job.channel->Finish(reason, rest, usage, std::move(error));
}

}  // namespace thermocline::sched
