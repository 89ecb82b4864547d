#include "server/http/request_reader.h"

#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>

#include "server/core/workers.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;

constexpr std::size_t kHeaderBytesMax = 32 << 10;
constexpr std::size_t kHoldBytes = 64 << 10;  // memory is held in steps of this size
// The buffer for the rest of a long body. Beast fills the existing buffer, which is one page, and a
// body of 4 MiB would take a thousand reads.
constexpr std::size_t kLongReadBytes = 32 << 10;
// Limits a chunked body's framing: a chunk of one byte has five more, and chunk extensions have no
// other limit.
constexpr std::size_t kFramingBytesMax = 192 << 10, kFramingPerByte = 16;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// True if the bytes are malformed, rather than the connection broken.
bool IsMalformed(const beast::error_code& error) {
  return error.category() ==
             beast_http::make_error_code(beast_http::error::bad_method).category() &&
         error != beast_http::error::end_of_stream && error != beast_http::error::partial_message;
}

}  // namespace

void RequestReader::ReadSome(std::size_t bytes_max, Done done) {
  connection_.async_read_some(buffer_.prepare(bytes_max),
                              [this, done = std::move(done)](ErrorCode error, std::size_t bytes) {
                                if (!error) buffer_.commit(bytes);
                                done(error);
                              });
}

void RequestReader::ReadHeader(std::uint64_t body_bytes_max, Done done) {
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(body_bytes_max);
  beast_http::async_read_header(
      connection_, buffer_, *parser_,
      [done = std::move(done)](ErrorCode error, std::size_t) { done(error); });
}

void RequestReader::SendContinue(Done done) {
  const bool asks = beast::iequals(request()[beast_http::field::expect], "100-continue");
  if (!asks || request().version() < 11) return done({});  // HTTP/1.0 has no 100 Continue
  asio::async_write(connection_, asio::buffer(kContinue),
                    [done = std::move(done)](ErrorCode error, std::size_t) { done(error); });
}

void RequestReader::ReadBody(server::RequestMemory& memory, const std::string& client, Done done) {
  hold_.emplace(memory, client);
  read_ = 0;
  parser_->eager(true);
  ReadOn(std::move(done));
}

void RequestReader::ReadOn(Done done) {
  no_room_ = HoldBody();
  if (!no_room_.ok()) return done(make_error_code(boost::system::errc::not_enough_memory));
  const std::size_t body = request().body().size();
  if (read_ > kFramingBytesMax + kFramingPerByte * body)
    return done(make_error_code(beast_http::error::buffer_overflow));
  if (parser_->is_done()) {
    if (body >= kHoldBytes) Shrink();
    return done({});
  }
  if (body >= kHoldBytes) buffer_.reserve(kLongReadBytes);
  beast_http::async_read_some(
      connection_, buffer_, *parser_,
      [this, done = std::move(done)](ErrorCode error, std::size_t bytes) mutable {
        read_ += bytes;
        error ? done(error) : ReadOn(std::move(done));
      });
}

Status RequestReader::HoldBody() {
  const std::size_t bytes = request().body().size();
  // The limit on connections covers small bodies.
  if (bytes <= server::kShortBytesMax) return OkStatus();
  // Without Content-Length the buffer grows by doubling.
  const std::size_t held = request().has_content_length() ? bytes : 2 * bytes;
  return hold_->Grow((held + kHoldBytes - 1) / kHoldBytes * kHoldBytes);
}

std::optional<protocol::ApiError> RequestReader::RefusalOf(
    ErrorCode error, const server::ServerConfig& config) const {
  if (error == beast_http::error::body_limit)
    return protocol::ClientError(413, "body_too_large",
                                 StrCat("the body is larger than ", config.body_bytes_max,
                                        " bytes (server.body_bytes_max)"));
  if (error == beast_http::error::header_limit)
    return protocol::ClientError(431, "bad_request",
                                 StrCat("the headers are larger than ", kHeaderBytesMax, " bytes"));
  if (error == beast_http::error::buffer_overflow)
    return protocol::ClientError(431, "bad_request",
                                 StrCat("a chunk's extension, or the trailers, are larger than ",
                                        kBufferBytesMax, " bytes"));
  if (error == asio::error::operation_aborted && connection_.expired())
    return protocol::ClientError(408, "request_timeout",
                                 StrCat("the request did not arrive within ", config.read_timeout_s,
                                        " s (server.read_timeout_s)"));
  if (!IsMalformed(error)) return std::nullopt;
  return protocol::ClientError(400, "bad_request",
                               "the HTTP request is malformed: " + error.message());
}

}  // namespace thermocline::http
