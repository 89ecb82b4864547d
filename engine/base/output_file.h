// Output files of commands may replace an earlier result of the same kind, and nothing else. A slip
// of the keyboard must not cost a model.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/file.h"

namespace thermocline::base {

struct OutputKind {
  std::string name;  // as "a trace"
  // True of a file of this kind. It may open the file's path again.
  std::function<bool(const File&)> matches;
  std::string advice = "choose another name";
};

// OK if `path` names no file, an empty one, or one of this kind. Else InvalidArgument says what is
// there. A device or a folder is never replaced.
Status CheckReplaceable(const std::string& path, const OutputKind& kind);

// The kind of files whose first bytes are `begin`.
OutputKind KindByMagic(std::string name, std::string_view begin);
// The first `bytes_max` bytes of `file`, or all of a shorter one; "" if it cannot be read.
std::string BeginOf(const File& file, std::size_t bytes_max);

// True if both paths name one file, which may have several names.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace thermocline::base
