// thermocline.v1.Inference: one function a method.
#pragma once

#include <boost/asio/io_context.hpp>

#include "server/core/strand_pool.h"
#include "server/grpc/call.h"
#include "thermocline/v1/inference.grpc.pb.h"

namespace thermocline::rpc {

// Thread-safe. gRPC's threads only hand the work to `io`, or, if it may take long, to the service's
// workers: it must hold up neither other calls' reads and writes nor their streams.
//
// Every method is a stream of messages to gRPC's library, though a client sends one: a call comes
// here with its metadata, and its message is read only if its caller is accepted. The library would
// read the messages of other methods before it says that there is a call.
class InferenceService final : public ::grpc::Service {
 public:
  InferenceService(boost::asio::io_context& io, server::Service& service, ConnectionCredit& credit);

 private:
  using Context = ::grpc::CallbackServerContext;

  void AddGenerate();
  // `handler(const Call&, const Request&, Response&)` fills the response or says why not. `work`:
  // whether it grows with the request.
  enum class Work { kShort, kLong };
  template <typename Request, typename Response, typename Handler>
  void AddUnary(const char* path, Work work, Handler handler);

  boost::asio::io_context& io_;
  server::StrandPool strands_;  // of streams
  server::Service& service_;
  ConnectionCredit& credit_;
};

}  // namespace thermocline::rpc
