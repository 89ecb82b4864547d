#include "server/http/response_writer.h"

#include <cstdio>
#include <memory>

#include <boost/asio/write.hpp>
#include <boost/beast/http/write.hpp>

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

std::string StreamHeader(const ResponseHead& head, const char* content_type) {
  std::string text =
      StrCat("HTTP/1.1 200 OK\r\nServer: thermocline\r\nContent-Type: ", content_type,
             "\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n",
             head.version >= 11 ? "Transfer-Encoding: chunked\r\n" : "",
             head.keep_alive ? "" : "Connection: close\r\n");
  for (const auto& [name, value] : HeadersOf(head)) text += StrCat(name, ": ", value, "\r\n");
  return text + "\r\n";
}

std::string Chunk(const std::string& data) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

// A message that is being written.
struct Writing {
  explicit Writing(HttpResponse of) : response(std::move(of)) {}
  HttpResponse response;
  beast_http::serializer<false, beast_http::string_body> serializer{response};
};

}  // namespace

void WriteResponse(Connection& connection, HttpResponse response, bool head_only,
                   WrittenHandler done) {
  auto writing = std::make_shared<Writing>(std::move(response));
  // The written bytes are freed before `done` starts other work.
  auto handler = [writing, done = std::move(done)](error_code error, std::size_t) mutable {
    writing.reset();
    done(error);
  };
  if (!head_only)
    return beast_http::async_write(connection, writing->serializer, std::move(handler));
  writing->serializer.split(true);
  beast_http::async_write_header(connection, writing->serializer, std::move(handler));
}

StreamWriter::StreamWriter(Connection& connection, const ResponseHead& head,
                           const char* content_type, const WriteLimits& limits)
    : connection_(connection),
      chunked_(head.version >= 11),
      limits_(limits),
      outgoing_(StreamHeader(head, content_type)) {}

void StreamWriter::Write(const std::string& events, bool last, WrittenHandler done) {
  // An empty chunk would end the stream.
  if (!events.empty()) outgoing_ += chunked_ ? Chunk(events) : events;
  if (last && chunked_) outgoing_ += "0\r\n\r\n";
  ended_ = ended_ || last;
  if (!writing_) Flush(std::move(done));
}

void StreamWriter::Flush(WrittenHandler done) {
  writing_ = true;
  written_at_ = std::chrono::steady_clock::now();
  in_flight_.swap(outgoing_);
  outgoing_.clear();
  connection_.ExpireWhenStuck(limits_, in_flight_.size());
  asio::async_write(connection_, asio::buffer(in_flight_),
                    [this, done = std::move(done)](error_code error, std::size_t) mutable {
                      writing_ = false;
                      in_flight_.clear();
                      connection_.ExpireNever();
                      if (!error && !outgoing_.empty()) return Flush(std::move(done));
                      done(error);
                    });
}

}  // namespace thermocline::http
