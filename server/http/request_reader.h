// Reads what a client sends: requests, and what comes before the last answer is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/core/request_memory.h"
#include "server/core/server_config.h"
#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// On the connection's strand, one read at a time. What `done` holds keeps the reader alive.
class RequestReader {
 public:
  using ErrorCode = boost::system::error_code;
  using Done = std::function<void(ErrorCode)>;

  explicit RequestReader(Connection& connection) : connection_(connection) {}

  // Waits for bytes, at most `bytes_max` of them, and keeps them for the next request.
  void ReadSome(std::size_t bytes_max, Done done);
  // A request's header, then request(). `body_bytes_max`: a larger body is an error.
  void ReadHeader(std::uint64_t body_bytes_max, Done done);
  // Tells a client that waits for such a word that its body is welcome.
  void Welcome(Done done);
  // The rest of the request, while `memory` has room for it on account of `client`; else an error,
  // and no_room says why.
  void ReadBody(server::RequestMemory& memory, const std::string& client, Done done);

  // Requires: its header was read, and Forget was not called.
  const HttpRequest& request() const { return parser_->get(); }
  // Its memory is large, and an answer may take long.
  void Forget() {
    parser_.reset();
    hold_.reset();
  }
  const Status& no_room() const { return no_room_; }
  // Returns the refusal where reading failed otherwise; nullopt: the client has left. `config`: of
  // the limits.
  std::optional<protocol::ApiError> RefusalOf(ErrorCode error,
                                              const server::ServerConfig& config) const;

  // Bytes that were read and are no part of a request yet.
  std::size_t early_bytes() const { return buffer_.size(); }
  void DiscardEarly() { buffer_.clear(); }
  // Gives back the memory that they do not need.
  void Shrink() { buffer_.shrink_to_fit(); }

 private:
  void ReadOn(Done done);
  // Counts what has arrived of the body.
  Status HoldBody();

  // Bounds what is read and not yet understood: trailers and chunk extensions, which have no other
  // bound.
  static constexpr std::size_t kBufferBytesMax = 128 << 10;

  Connection& connection_;
  boost::beast::flat_buffer buffer_{kBufferBytesMax};
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<server::RequestMemory::Hold> hold_;  // of the body
  std::size_t read_ = 0;                             // bytes of the body with its framing
  Status no_room_;                                   // why the body was not read on
};

}  // namespace thermocline::http
