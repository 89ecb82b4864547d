// Parses an HTTP/1.1 response from arbitrary pieces: its header, then its body without the framing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "engine/base/status.h"

namespace thermocline::loadtest {

// A Beast body that reserves no memory, whatever Content-Length a server claims. The caller takes
// the bytes out after each piece.
struct PassingBody {
  using value_type = std::string;
  class reader {  // NOLINT(readability-identifier-naming): Beast's name
   public:
    template <bool isRequest, class Fields>
    reader(boost::beast::http::header<isRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&,  // NOLINT(readability-identifier-naming)
              boost::beast::error_code& error) {
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers,  // NOLINT(readability-identifier-naming)
                    boost::beast::error_code& error) {
      error = {};
      std::size_t bytes = 0;
      for (const auto& buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      return bytes;
    }
    void finish(boost::beast::error_code& error) {  // NOLINT(readability-identifier-naming)
      error = {};
    }

   private:
    value_type& body_;
  };
};

class HttpParser {
 public:
  explicit HttpParser(std::uint64_t body_bytes_max = std::uint64_t{1} << 30);

  // Parses as far as possible. DataLoss: this is not HTTP, or it exceeds a limit.
  Status Feed(std::string_view bytes);
  // Called when the connection has ended. DataLoss: in the middle of the response.
  Status End();

  bool header_done() const { return header_done_; }
  bool done() const { return parser_->is_done(); }
  bool keep_alive() const { return parser_->keep_alive(); }
  // Requires: header_done().
  int status() const { return parser_->get().result_int(); }
  std::string Field(std::string_view name) const;
  // The body's bytes since the last call.
  std::string TakeBody() { return std::exchange(parser_->get().body(), {}); }

 private:
  void Begin();

  const std::uint64_t body_bytes_max_;
  std::optional<boost::beast::http::response_parser<PassingBody>> parser_;
  std::string pending_;  // an incomplete header or chunk size
  bool header_done_ = false;
};

}  // namespace thermocline::loadtest
