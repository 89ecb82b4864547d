// Parses server-sent events: from arbitrary pieces of bytes to the data of events.
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
  // `bytes_max`: the limit of a line, and of the data of an event.
  explicit SseParser(OnEvent on_event, std::size_t bytes_max = 4u << 20)
      : on_event_(std::move(on_event)), bytes_max_(bytes_max) {}

  // ResourceExhausted: a line or an event is too long; parsing stops.
  Status Feed(std::string_view bytes);
  // Called at the stream's end. An event without its empty line counts, too, since some servers
  // omit it.
  void End();

 private:
  void EndLine();

  const OnEvent on_event_;
  const std::size_t bytes_max_;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, first_line_ = true;
};

}  // namespace thermocline::loadtest
