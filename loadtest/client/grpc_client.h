// Requests over Thermocline's gRPC interface. A build without gRPC has grpc_client_absent.cc.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "loadtest/client/client.h"
#include "loadtest/client/url.h"

namespace thermocline::loadtest {

struct GrpcOptions {
  Url url = {};
  std::string api_key = {}, ca_file = {};
  std::optional<double> temperature = {};
  double timeout_s = 120;
};

// Unimplemented: this program was built without gRPC.
Result<std::unique_ptr<Client>> MakeGrpcClient(boost::asio::io_context& io,
                                               const GrpcOptions& options);

// The model's name, by GetModel. Unavailable: the server cannot be reached.
Result<std::string> GrpcModelName(const GrpcOptions& options);

}  // namespace thermocline::loadtest
