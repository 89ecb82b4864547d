#include "loadtest/workload/json_lines.h"

#include "engine/base/file.h"

namespace thermocline::loadtest {

Status ReadJsonLines(const std::string& path, const std::function<Status(const Json&)>& read) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  std::size_t line_number = 0, values = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = base::ParseJson(line);
    const Status status = json.ok() ? read(*json) : json.status();
    if (!status.ok()) return status.Annotate(StrCat(path, ":", line_number));
    ++values;
  }
  if (values == 0) return base::InvalidArgument(path, ": it has no lines");
  return OkStatus();
}

}  // namespace thermocline::loadtest
