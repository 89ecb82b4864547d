// Chooses the model that falls asleep when another one wants its memory.
#pragma once

#include <memory>

#include "server/core/model_list.h"

namespace thermocline::server {

struct SleepChoice {
  std::shared_ptr<ServedModel> victim = nullptr;  // nullptr: no loaded model is idle
  bool busy = false;                              // one that may sleep later answers now
};

// Chooses among the loaded models of `all`, except `wanted` and pinned ones, the one whose idle
// time, times its bytes, divided by the time that it takes to load, is largest. Requires: what
// guards them is locked.
SleepChoice ChooseToSleep(const ModelList::Models& all, const ServedModel& wanted);

}  // namespace thermocline::server
