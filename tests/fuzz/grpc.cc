// Fuzzes a gRPC request to generate, in wire format.
#include "server/grpc/generate_request.h"
#include "tests/fuzz/input.h"
#include "thermocline/v1/inference.pb.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  v1::GenerateRequest message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  (void)rpc::ParseGenerate(message, {.sampling = {}, .max_tokens = 16});
  return 0;
}
