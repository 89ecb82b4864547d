// Chooses the model that falls asleep when another one wants its memory.
#pragma once

#include <cstdint>
#include <memory>

#include "server/core/model_list.h"

namespace thermocline::server {

struct SleepChoice {
  std::shared_ptr<ServedModel> victim = nullptr;  // nullptr: idle models do not hold enough
  bool busy = false;                              // one that may sleep later answers now
};

// Chooses among the loaded models of `all`, except `wanted` and pinned ones, the one whose idle
// time, times its bytes, divided by the time that it takes to load, is largest. None sleeps if all
// idle ones together would leave less of `total` than `wanted` needs. Requires, here and below:
// ServedModels' mutex is held.
SleepChoice ChooseToSleep(const ModelList::Models& all, const ServedModel& wanted,
                          std::int64_t total);

// True if a waiting model may fit now: it has not been tried, or memory has become free since the
// last try. `sleeps`: the models that have fallen asleep so far.
bool IsWorthTrying(const ModelList::Models& all, const ServedModel& wanted, std::int64_t total,
                   int sleeps);

// Chooses a model that has been idle for some seconds, and whose weights come from flash though
// others leave it a quarter more memory than it was loaded with; nullptr: none.
std::shared_ptr<ServedModel> ChooseToGrow(const ModelList::Models& all, std::int64_t total);

}  // namespace thermocline::server
