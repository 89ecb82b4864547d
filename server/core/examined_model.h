// Reads files that merely lie in a folder, and that nobody has named, in a process of its own: the
// harm that a hostile file does to its reader ends with that process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/status.h"
#include "engine/model_facts.h"

namespace thermocline::server {

// The first argument of this program, before a path, that makes it call PrintExamination.
inline constexpr const char* kExamineFlag = "--examine-model";

// Runs this program to read the model's header, its vocabulary and its chat template, as loading
// does, within a bound of memory, ten seconds of a processor and a minute. Returns the facts.
// FailedPrecondition: it did not end within the bounds, or the model cannot be read, with the
// reason. Cancelled: `ends`, which is asked now and then, was true. Unavailable: no process can be
// started.
Result<ModelFacts> ExamineModel(const std::string& path, std::int64_t budget_bytes,
                                const std::function<bool()>& ends);

// The program's side. Returns its exit status.
int PrintExamination(const std::string& path);

}  // namespace thermocline::server
