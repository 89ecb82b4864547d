// The ways to read a model's file while it loads: through the page cache, or bypassing it.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "engine/api/model_options.h"
#include "engine/model/model_file.h"

namespace thermocline::load {

// Sets how `file` is read. kAuto: bypasses the page cache if a GPU shares the host's memory
// (`unified`), or if file and weights would not fit beside each other; otherwise uses it, so that
// the next start finds the file there. Returns "direct", "dropped" (read through the cache and
// dropped from it at once, if the file system has no direct reads) or "cached".
std::string ConfigureFileReading(FileReading asked, bool unified, model::ModelFile& file);

// True if the weights will probably be read through the page cache, all of them.
bool MayReadAhead(const ModelOptions& options, const model::ModelFile& file);

// Reads a model's files into the page cache while other threads read weights from there and pack
// them, so that the disk does not wait for the processors. Its thread ends with this object.
class ReadAhead {
 public:
  // Requires: `file` outlives it, and ReadDirectly is not called meanwhile.
  explicit ReadAhead(const model::ModelFile& file);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace thermocline::load
