// Server reflection: grpc.reflection.v1, and v1alpha, which is the same under another name. gRPC's
// own plugin supports only v1alpha and uses a thread per stream.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace grpc {
class Service;
}

namespace thermocline::rpc {

// Services to register with a server; they must outlive it. They need no key; a stream that is idle
// for `quiet_max` ends.
std::vector<std::unique_ptr<::grpc::Service>> MakeReflections(boost::asio::io_context& io,
                                                              std::chrono::seconds quiet_max);

}  // namespace thermocline::rpc
