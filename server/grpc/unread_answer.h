// An answer of one message, from when it is made until its client has taken it.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "server/core/request_memory.h"

namespace thermocline::rpc {

// Counts its bytes, and cancels its call when the client takes too long. Thread-compatible.
class UnreadAnswer {
 public:
  UnreadAnswer(boost::asio::io_context& io, server::RequestMemory& memory,
               const std::string& client, ::grpc::CallbackServerContext& context);
  // The call's context may end next.
  ~UnreadAnswer();
  UnreadAnswer(const UnreadAnswer&) = delete;
  UnreadAnswer& operator=(const UnreadAnswer&) = delete;

  // Before it is written. ResourceExhausted: the client's earlier ones are to be read first.
  Status Begin(std::size_t bytes, std::chrono::seconds allowed);

 private:
  class Watch;
  server::RequestMemory::Hold hold_;
  const std::shared_ptr<Watch> watch_;
};

}  // namespace thermocline::rpc
