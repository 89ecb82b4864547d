// Tells clients the interface, as grpc.reflection.v1 has it. gRPC's own plugin speaks v1alpha only,
// which newer clients no longer ask for.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace thermocline::rpc {

// `services`: names to list. To be registered with a server, which it must outlive.
std::unique_ptr<::grpc::Service> MakeReflection(std::vector<std::string> services);

}  // namespace thermocline::rpc
