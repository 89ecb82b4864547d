#include "server/http/request_reader.h"

#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;

constexpr std::size_t kHeaderBytesMax = 32 << 10;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Whether the bytes are at fault, and not the connection.
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

void RequestReader::Welcome(Done done) {
  if (!beast::iequals(request()[beast_http::field::expect], "100-continue")) return done({});
  asio::async_write(connection_, asio::buffer(kContinue),
                    [done = std::move(done)](ErrorCode error, std::size_t) { done(error); });
}

void RequestReader::ReadBody(Done done) {
  beast_http::async_read(connection_, buffer_, *parser_,
                         [done = std::move(done)](ErrorCode error, std::size_t) { done(error); });
}

std::optional<openai::ApiError> RequestReader::RefusalOf(ErrorCode error,
                                                         const server::ServerConfig& config) const {
  if (error == beast_http::error::body_limit)
    return openai::ClientError(413, "body_too_large",
                               StrCat("the body is larger than ", config.body_bytes_max,
                                      " bytes (server.body_bytes_max)"));
  if (error == beast_http::error::header_limit)
    return openai::ClientError(431, "bad_request",
                               StrCat("the headers are larger than ", kHeaderBytesMax, " bytes"));
  if (error == beast_http::error::buffer_overflow)
    return openai::ClientError(431, "bad_request",
                               StrCat("a chunk's extension, or the trailers, are larger than ",
                                      kBufferBytesMax, " bytes"));
  if (error == asio::error::operation_aborted && connection_.expired())
    return openai::ClientError(408, "request_timeout",
                               StrCat("the request did not arrive within ", config.read_timeout_s,
                                      " s (server.read_timeout_s)"));
  if (!IsMalformed(error)) return std::nullopt;
  return openai::ClientError(400, "bad_request",
                             "the HTTP request is malformed: " + error.message());
}

}  // namespace thermocline::http
