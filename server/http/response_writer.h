// Writes answers to a connection: whole ones at once, streams as their events come.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// `error`: the client takes no more.
using WrittenHandler = std::function<void(boost::system::error_code error)>;

// `head_only`: without the body, as HEAD asks. What `done` holds keeps the connection alive.
void WriteResponse(Connection& connection, HttpResponse response, bool head_only,
                   WrittenHandler done);

// The answer is a stream of events: of chunks, or in HTTP/1.0 of bytes that end with the
// connection. One batch is on its way at a time; what is given meanwhile goes with the next. On the
// connection's strand.
class StreamWriter {
 public:
  // Begins with the header that says `head`. `limits`: of its client, for each batch.
  StreamWriter(Connection& connection, const ResponseHead& head, const char* content_type,
               const WriteLimits& limits);

  // Appends `events`; `last`: they end the stream. `done` is called when all that was given up to
  // then is written, or cannot be; while a write is in progress, only the `done` it began with.
  // Until then what `done` holds keeps the writer alive.
  void Write(const std::string& events, bool last, WrittenHandler done);

  bool writing() const { return writing_; }
  // True once the end of the stream was given.
  bool ended() const { return ended_; }
  // Bytes that were given and are not with the system yet.
  std::size_t waiting_bytes() const { return outgoing_.size() + in_flight_.size(); }
  // When the last batch began.
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
