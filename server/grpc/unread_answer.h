// A response of one message, from its creation until the client has read it.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "server/core/request_memory.h"

namespace thermocline::rpc {

// Accounts for its bytes, and cancels the call if the client reads too slowly. Thread-compatible.
class UnreadAnswer {
 public:
  UnreadAnswer(boost::asio::io_context& io, server::RequestMemory& memory,
               const std::string& client, ::grpc::CallbackServerContext& context);
  // The call's context may be destroyed afterwards.
  ~UnreadAnswer();
  UnreadAnswer(const UnreadAnswer&) = delete;
  UnreadAnswer& operator=(const UnreadAnswer&) = delete;

  // Called before the message is written. ResourceExhausted: the client must read its earlier
  // answers first.
  Status Begin(std::size_t bytes, std::chrono::seconds allowed);

 private:
  class Watch;
  server::RequestMemory::Hold hold_;
  const std::shared_ptr<Watch> watch_;
};

}  // namespace thermocline::rpc
