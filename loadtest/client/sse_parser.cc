#include "loadtest/client/sse_parser.h"

namespace thermocline::loadtest {

Status SseParser::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() > bytes_max_ || data_.size() > bytes_max_) {
      return base::ResourceExhausted("an event of the stream has more than ", bytes_max_, " bytes");
    }
    if (end == std::string_view::npos) return OkStatus();
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    EndLine();
  }
  return OkStatus();
}

void SseParser::End() {
  if (!line_.empty()) EndLine();
  EndLine();
}

void SseParser::EndLine() {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (std::exchange(has_data_, false)) on_event_(data_);
    data_.clear();
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(std::min<std::size_t>(5, line.size()));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += line;
  }
  line_.clear();
}

}  // namespace thermocline::loadtest
