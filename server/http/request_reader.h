// Reads requests from a client, and bytes that it sends before the last answer is complete.
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

// Used on the connection's strand, one read at a time. The captures of `done` keep the reader
// alive.
class RequestReader {
 public:
  using ErrorCode = boost::system::error_code;
  using Done = std::function<void(ErrorCode)>;

  explicit RequestReader(Connection& connection) : connection_(connection) {}

  // Waits for bytes, at most `bytes_max`, and keeps them for the next request.
  void ReadSome(std::size_t bytes_max, Done done);
  // Reads a request's header into request(). `body_bytes_max`: a larger body is an error.
  void ReadHeader(std::uint64_t body_bytes_max, Done done);
  // Sends 100 Continue to a client that expects it.
  void SendContinue(Done done);
  // Reads the rest of the request, while `memory` has room for it in the account of `client`;
  // otherwise calls `done` with an error, and no_room gives the reason.
  void ReadBody(server::RequestMemory& memory, const std::string& client, Done done);

  // Requires: the header was read, and Clear was not called since.
  const HttpRequest& request() const { return parser_->get(); }
  // Frees the request: it is large, and its answer may take long.
  void Clear() {
    parser_.reset();
    hold_.reset();
  }
  const Status& no_room() const { return no_room_; }
  // Returns the error response for a failed read; nullopt if the client has disconnected. `config`
  // has the limits.
  std::optional<protocol::ApiError> RefusalOf(ErrorCode error,
                                              const server::ServerConfig& config) const;

  // Bytes that arrived and belong to no request yet.
  std::size_t early_bytes() const { return buffer_.size(); }
  void DiscardEarly() { buffer_.clear(); }
  // Frees the buffer's spare memory.
  void Shrink() { buffer_.shrink_to_fit(); }

 private:
  void ReadOn(Done done);
  // Holds memory for the bytes of the body that have arrived.
  Status HoldBody();

  // Limits bytes that are read but not yet parsed: trailers and chunk extensions have no other
  // limit.
  static constexpr std::size_t kBufferBytesMax = 128 << 10;

  Connection& connection_;
  boost::beast::flat_buffer buffer_{kBufferBytesMax};
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<server::RequestMemory::Hold> hold_;  // memory of the body
  std::size_t read_ = 0;                             // bytes of the body and its framing
  Status no_room_;                                   // the error that stopped reading the body
};

}  // namespace thermocline::http
