// Checks for commands' output files, which may replace an earlier result of the same kind and
// nothing else, so that a typing error cannot overwrite a model.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/file.h"

namespace thermocline::base {

struct OutputKind {
  std::string name;  // for example "a trace"
  // True of a file of this kind. It may open the file's path again.
  std::function<bool(const File&)> matches;
  std::string advice = "choose another name";
};

// OK if `path` does not exist, is empty, or is a file of this kind. Otherwise InvalidArgument names
// the file that is there. A device or a folder is never replaced.
Status CheckReplaceable(const std::string& path, const OutputKind& kind);

// The kind of files whose first bytes are `begin`.
OutputKind KindByMagic(std::string name, std::string_view begin);
// The first `bytes_max` bytes of `file`, or all of a shorter one; "" if it cannot be read.
std::string BeginOf(const File& file, std::size_t bytes_max);

// True if both paths name the same file, which may have several names.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace thermocline::base
