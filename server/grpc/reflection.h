// Tells clients the interface, as grpc.reflection.v1 has it, and v1alpha, which is the same under
// another name. gRPC's own plugin speaks v1alpha only, with a thread for each stream.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace grpc {
class Service;
}

namespace thermocline::rpc {

// To be registered with a server, which they must outlive. Needs no key; a stream that asks or
// reads nothing for `quiet_max` ends.
std::vector<std::unique_ptr<::grpc::Service>> MakeReflections(boost::asio::io_context& io,
                                                              std::chrono::seconds quiet_max);

}  // namespace thermocline::rpc
