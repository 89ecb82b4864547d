#include "loadtest/client/grpc_client.h"

namespace thermocline::loadtest {
namespace {

Status Absent() {
  return base::Unimplemented(
      "--api grpc: this program was built without gRPC (deploy/install-deps.sh installs it)");
}

}  // namespace

Result<std::unique_ptr<Client>> MakeGrpcClient(boost::asio::io_context&, const GrpcOptions&) {
  return Absent();
}

Result<std::string> GrpcModelName(const GrpcOptions&) { return Absent(); }

}  // namespace thermocline::loadtest
