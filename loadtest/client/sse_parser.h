// Server-sent events: from bytes, cut anywhere, to the data of events.
//
// Source: WHATWG HTML, "Server-sent events": lines end with LF, CR LF or CR; an event ends with an
// empty line; lines that begin with a colon are comments.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace thermocline::loadtest {

class SseParser {
 public:
  using OnEvent = std::function<void(const std::string& data)>;
  // A line, and the data of an event, have at most `bytes_max` bytes.
  explicit SseParser(OnEvent on_event, std::size_t bytes_max = 4u << 20)
      : on_event_(std::move(on_event)), bytes_max_(bytes_max) {}

  // ResourceExhausted: a line or an event is too long; nothing is parsed any more.
  Status Feed(std::string_view bytes);
  // The stream has ended: an event that lacks its empty line counts, too, since servers forget it.
  void End();

 private:
  void EndLine();

  const OnEvent on_event_;
  const std::size_t bytes_max_;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, first_line_ = true;
};

}  // namespace thermocline::loadtest
