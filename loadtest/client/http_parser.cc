#include "loadtest/client/http_parser.h"

namespace thermocline::loadtest {
namespace {

namespace http = boost::beast::http;
constexpr std::uint32_t kHeaderBytesMax = 64u << 10;
constexpr std::size_t kPendingBytesMax = 128u << 10;

}  // namespace

HttpParser::HttpParser(std::uint64_t body_bytes_max) : body_bytes_max_(body_bytes_max) { Begin(); }

void HttpParser::Begin() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(body_bytes_max_);
}

Status HttpParser::Feed(std::string_view bytes) {
  pending_.append(bytes);
  std::size_t at = 0;
  while (at < pending_.size() && !parser_->is_done()) {
    boost::beast::error_code error;
    at += parser_->put(boost::asio::buffer(pending_.data() + at, pending_.size() - at), error);
    header_done_ = parser_->is_header_done();
    if (error == http::error::need_more) break;
    if (error) return base::DataLoss("not an HTTP response: ", error.message());
    if (parser_->is_done() && status() / 100 == 1) {  // after 100 Continue, the response follows
      Begin();
      header_done_ = false;
    }
  }
  pending_.erase(0, at);
  if (pending_.size() > kPendingBytesMax)
    return base::DataLoss("not an HTTP response: a header or a chunk's size never ends");
  return OkStatus();
}

Status HttpParser::End() {
  boost::beast::error_code error;
  if (!parser_->is_done()) parser_->put_eof(error);
  if (error) return base::DataLoss("the connection ended before the response did");
  return OkStatus();
}

std::string HttpParser::Field(std::string_view name) const {
  const auto value = parser_->get()[boost::beast::string_view(name.data(), name.size())];
  return std::string(value.data(), value.size());
}

}  // namespace thermocline::loadtest
