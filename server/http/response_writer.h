// Writes answers to a connection: complete responses at once, streams event by event.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// `error`: the client accepts no more bytes.
using WrittenHandler = std::function<void(boost::system::error_code error)>;

// `head_only`: omits the body, as for HEAD. The captures of `done` keep the connection alive.
void WriteResponse(Connection& connection, HttpResponse response, bool head_only,
                   WrittenHandler done);

// An answer that is a stream of events: in chunks, or for HTTP/1.0 in bytes until the connection
// closes. One batch is written at a time; events that arrive meanwhile go with the next. Used on
// the connection's strand.
class StreamWriter {
 public:
  // Starts with a header made from `head`. `limits`: the client's, for each batch.
  StreamWriter(Connection& connection, const ResponseHead& head, const char* content_type,
               const WriteLimits& limits);

  // Appends `events`; with `last` they end the stream. `done` is called when all events so far are
  // written, or failed; during a write, only the `done` that started it is called. Until then the
  // captures of `done` keep the writer alive.
  void Write(const std::string& events, bool last, WrittenHandler done);

  bool writing() const { return writing_; }
  // True once the end of the stream was given to Write.
  bool ended() const { return ended_; }
  // Bytes given to Write that are not in the kernel's buffer yet.
  std::size_t waiting_bytes() const { return outgoing_.size() + in_flight_.size(); }
  // The time at which the last batch started.
  std::chrono::steady_clock::time_point written_at() const { return written_at_; }

 private:
  void Flush(WrittenHandler done);

  Connection& connection_;
  const bool chunked_;
  const WriteLimits limits_;
  std::chrono::steady_clock::time_point written_at_;
  std::string outgoing_;   // framed bytes waiting to be written
  std::string in_flight_;  // bytes being written
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace thermocline::http
