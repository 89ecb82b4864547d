#include "engine/store/block_reader.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/base/log.h"
#include "engine/base/posix_error.h"
#include "engine/store/file_reader.h"

namespace thermocline::store {
namespace {

constexpr int kDepthMax = 4096;

// The reader that THERMOCLINE_FLASH_IO selects; see the header.
enum class Wanted { kAny, kUring, kPread };
Result<Wanted> WantedByEnvironment() {
  const char* text = std::getenv("THERMOCLINE_FLASH_IO");
  const std::string_view name = text == nullptr ? "" : text;
  if (name.empty()) return Wanted::kAny;
  if (name == "io_uring") return Wanted::kUring;
  if (name == "pread") return Wanted::kPread;
  return base::InvalidArgument("THERMOCLINE_FLASH_IO is \"", name, "\": use io_uring or pread");
}

}  // namespace

Result<std::unique_ptr<BlockReader>> OpenBlockReader(const std::string& path,
                                                     const ReaderOptions& options) {
  ASSIGN_OR_RETURN(const Wanted wanted, WantedByEnvironment());
  ASSIGN_OR_RETURN(base::DirectFile file, base::DirectFile::Open(path, options.allow_direct));
  const int depth = std::clamp(options.depth, 1, kDepthMax);
  const std::string how =
      file.direct() ? StrCat("around the page cache in multiples of ", file.alignment(), " bytes")
                    : StrCat("through the page cache (", file.why_not_direct(), ")");
  std::string why_not = wanted == Wanted::kPread ? "THERMOCLINE_FLASH_IO=pread" : "not asked for";
  if (wanted != Wanted::kPread && (options.allow_io_uring || wanted == Wanted::kUring)) {
    auto reader = MakeUringReader(file, depth);
    if (reader.ok()) {
      base::LogInfo(path, ": read with io_uring, ", how);
      return reader;
    }
    why_not = reader.status().message();
    if (wanted == Wanted::kUring)
      return base::FailedPrecondition("THERMOCLINE_FLASH_IO=io_uring: ", why_not);
  }
  base::LogInfo(path, ": read by a pool of threads (io_uring: ", why_not, "), ", how);
  return MakePreadReader(std::move(file), depth);
}

Status ReadStatus(const BlockReader& reader, const BlockReader::Read& read,
                  const Completion& completion) {
  if (completion.result < 0) {
    return base::ErrnoStatus(reader.path(),
                             StrCat("read ", read.bytes, " bytes at ", read.offset).c_str(),
                             static_cast<int>(-completion.result));
  }
  const std::uint64_t end = read.offset + completion.result;
  if (end >= std::min(read.offset + read.bytes, reader.size())) return OkStatus();
  return base::DataLoss(reader.path(), ": ends at byte ", end, " of the ", reader.size(),
                        " it had when it was opened; it was truncated while open");
}

}  // namespace thermocline::store
