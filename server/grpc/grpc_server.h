// The gRPC interface: thermocline.v1.Inference, grpc.health.v1 and reflection. A build without gRPC
// cannot enable it.
#pragma once

#include <memory>

#include "engine/base/status.h"
#include "server/core/service.h"

namespace thermocline::rpc {

// Its health service reports SERVING while the service is ready, for "" and for
// "thermocline.v1.Inference".
class GrpcServer {
 public:
  // Listens at once on grpc.address; nullptr if that is "". Unavailable: cannot listen there now.
  // Unimplemented: built without gRPC. Requires: no other thread uses the service yet; the engine
  // ends between Shutdown and destruction.
  static Result<std::unique_ptr<GrpcServer>> Create(server::Service& service);
  ~GrpcServer();

  // Accepts no further calls; running ones get a short time, then they are cancelled. Watches of
  // the health service end then, too. Afterwards no call uses the service any more.
  void Shutdown();

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline::rpc
