// thermocline.v1.Inference, with one function per method.
#pragma once

#include <boost/asio/io_context.hpp>

#include "server/core/strand_pool.h"
#include "server/grpc/request_context.h"
#include "thermocline/v1/inference.grpc.pb.h"

namespace thermocline::rpc {

// Thread-safe. gRPC's threads only pass work to `io` or, if it may take long, to the service's
// workers, so that it delays no other call's reads, writes or streams.
//
// Every method is registered as bidirectional, though a client sends one message: then the library
// delivers a call with its metadata, and its message is read only if the caller is accepted. For
// other methods the library would read the message before it delivers the call.
class InferenceService final : public ::grpc::Service {
 public:
  InferenceService(boost::asio::io_context& io, server::Service& service, ConnectionCredit& credit);

 private:
  using Context = ::grpc::CallbackServerContext;

  void AddGenerate();
  // `handler(Service& model, const RequestContext&, const Request&, Response&)` fills the response
  // or returns an error. `work`: kLong if it grows with the request.
  enum class Work { kShort, kLong };
  template <typename Request, typename Response, typename Handler>
  void AddUnary(const char* path, Work work, Handler handler);

  boost::asio::io_context& io_;
  server::StrandPool strands_;  // for streams
  server::Service& service_;
  ConnectionCredit& credit_;
};

}  // namespace thermocline::rpc
