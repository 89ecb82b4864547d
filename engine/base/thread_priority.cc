#include "engine/base/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace thermocline::base {
namespace {

constexpr std::uint64_t kKeepPolicy = 0x08;      // of Linux 5.3 and later
constexpr std::uint64_t kShortTurnNs = 100'000;  // the minimum of Linux

// The first version of Linux's sched_attr, for which the C library has no declaration.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = kKeepPolicy;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

void LowerPriority(int niceness) {
  if (::getpriority(PRIO_PROCESS, 0) < niceness) ::setpriority(PRIO_PROCESS, 0, niceness);
}

void AskForShortTurns() {
  SchedulingAttributes attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = kShortTurnNs;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace thermocline::base
