// The gRPC server of a build without gRPC.
#include "server/grpc/grpc_server.h"

namespace thermocline::rpc {

struct GrpcServer::Impl {};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Create(server::Service& service) {
  if (service.config().grpc_address.empty()) return std::unique_ptr<GrpcServer>();
  return base::Unimplemented(
      "grpc.address: this build has no gRPC interface; install libgrpc++-dev and "
      "protobuf-compiler-grpc and build again");
}
GrpcServer::~GrpcServer() = default;
void GrpcServer::Shutdown() {}

}  // namespace thermocline::rpc
