#include "engine/base/output_file.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/strings.h"

namespace thermocline::base {

Status CheckReplaceable(const std::string& path, const OutputKind& kind) {
  if (!PathExists(path)) return OkStatus();
  const auto file = OpenFile(path);
  if (!file.ok()) return file.status().Annotate(kind.advice);
  if ((*file)->size() == 0 || kind.matches(**file)) return OkStatus();
  return InvalidArgument(path, ": exists and is not ", kind.name, "; ", kind.advice);
}

std::string BeginOf(const File& file, std::size_t bytes_max) {
  std::string begin(std::min<std::uint64_t>(bytes_max, file.size()), '\0');
  return file.ReadAt(0, std::as_writable_bytes(std::span(begin))).ok() ? begin : "";
}

OutputKind KindByMagic(std::string name, std::string_view begin) {
  const auto matches = [begin = std::string(begin)](const File& file) {
    return BeginOf(file, begin.size()) == begin;
  };
  return {.name = std::move(name), .matches = matches};
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

}  // namespace thermocline::base
