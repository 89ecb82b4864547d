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

bool MayReadAhead(const ModelOptions& options, const model::ModelFile& file) {
  const bool whole = options.memory.bundle.empty() && options.memory.ffn_share <= 0;
  return whole && file.bytes() <= base::MemoryBudget(options.memory.budget_bytes) &&
         !ReadsDirectly(options.reading, /*unified=*/false, file);
}

ReadAhead::ReadAhead(const model::ModelFile& file) {
  constexpr std::uint64_t kPart = 8 << 20;
  thread_ = std::thread([this, &file] {
    for (const auto& part : file.files)
      for (std::uint64_t at = 0; at < part->size() && !stops_; at += kPart)
        part->ReadAhead(at, kPart);
  });
}

ReadAhead::~ReadAhead() {
  stops_ = true;
  thread_.join();
}

}  // namespace thermocline::load
