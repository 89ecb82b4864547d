// Reads files that merely lie in a folder, and that nobody has named, in a process of its own: the
// harm that a hostile file does to its reader ends with that process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/status.h"
#include "engine/model_facts.h"

namespace thermocline::server {

// The first argument of this program, before a path, that makes it call PrintExamination.
inline constexpr const char* kExamineFlag = "--examine-model";

// The outcome of an examination.
struct Examination {
  std::string files;  // as FilesOf when it began
  Status status;      // FailedPrecondition: the model cannot be read, or not within the bounds
  ModelFacts facts;
  std::int64_t peak_bytes = 0;  // the most memory that reading took
  using Clock = std::chrono::steady_clock;
  Clock::time_point began = Clock::now(), ended = {};

  // The time before which the model is not examined again: files that change at every look would
  // keep a processor busy.
  Clock::time_point again_at() const;
};

// Names the files at `path`, a file or a folder, with their sizes and times: another text means
// that they are not the same any more. Of a file in parts all parts count.
std::string FilesOf(const std::string& path);

// Runs this program to read the model's header, its vocabulary and its chat template, as loading
// does, within a third of the budget (112 MiB at least, 1 GiB at most), ten seconds of a processor
// and a minute. Its status is Cancelled if `ends`, which is asked now and then, was true, and
// Unavailable if no process can be started.
Examination ExamineModel(const std::string& path, std::int64_t budget_bytes,
                         const std::function<bool()>& ends);

// The program's side. Returns its exit status.
int PrintExamination(const std::string& path);

}  // namespace thermocline::server
