#include "engine/load/file_reading.h"

#include "engine/base/log.h"
#include "engine/base/system_memory.h"

namespace thermocline::load {
namespace {

bool ReadsDirectly(FileReading asked, bool unified, const model::ModelFile& file) {
  if (asked != FileReading::kAuto) return asked == FileReading::kDirect;
  return unified || file.bytes() > base::MemoryAllowance() / 2;
}

}  // namespace

std::string ConfigureFileReading(FileReading asked, bool unified, model::ModelFile& file) {
  if (!ReadsDirectly(asked, unified, file)) return "cached";
  const std::string why = file.ReadDirectly();
  if (why.empty()) return "direct";
  base::LogInfo("the model's file cannot be read around the page cache (", why,
                "); it is dropped from there as it is read");
  return "dropped";
}

}  // namespace thermocline::load
