// Scheduling priority of the calling thread, for times when there are more threads than processors.
// No effect on a system that does not support or permit it.
#pragma once

namespace thermocline::base {

// Lets other threads of this process run first. 1 to 19, as nice(2).
void LowerPriority(int niceness);

// For a thread with short work that others wait for: it runs soon after it wakes, with the same
// total time as others, in shorter slices.
// Source: sched_setattr(2), sched_runtime of SCHED_OTHER, which Linux obeys from 6.12 on.
void AskForShortTurns();

}  // namespace thermocline::base
