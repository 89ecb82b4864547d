// The gRPC interface: thermocline.v1.Inference, grpc.health.v1 and reflection. Built without gRPC,
// it cannot be switched on.
#pragma once

#include <memory>

#include "engine/base/status.h"
#include "server/core/service.h"

namespace thermocline::rpc {

// Health follows the service's state: SERVING while it is ready, for "" and for
// "thermocline.v1.Inference".
class GrpcServer {
 public:
  // Listens at once on grpc.address; nullptr where that is "". Unavailable: cannot listen there
  // now. Unimplemented: built without gRPC. Requires: no other thread uses the service yet; the
  // engine ends between Shutdown and destruction.
  static Result<std::unique_ptr<GrpcServer>> Create(server::Service& service);
  ~GrpcServer();

  // Takes no further call; those that go on have a moment, then they are cancelled. Watches of the
  // health service go on until then. After it no call uses the service any more.
  void Shutdown();

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline::rpc
