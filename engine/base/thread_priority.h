// Which threads the system runs first where they are more than the processors. Of the calling
// thread alone; a system that knows or allows none of it changes nothing.
#pragma once

namespace thermocline::base {

// Others of this process go first. 1 to 19, as nice(2).
void LowerPriority(int niceness);

// Work of this thread is short and others wait for it: it runs soon after it wakes, for as much
// time in all as others, in smaller parts.
// Source: sched_setattr(2), sched_runtime of SCHED_OTHER, which Linux obeys from 6.12 on.
void AskForShortTurns();

}  // namespace thermocline::base
