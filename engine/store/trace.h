// A trace of the neurons that decoded tokens needed, for replaying caches (`plan --replay`).
//
//   8 bytes magic "TCTRACE1", then u32 L, u32 F, u32 bytes of the model's hash and the hash; then
//   records until the end: for each token and each layer in order, varint count, and count varints:
//   the first neuron, and each further one's distance to the one before, less one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/file.h"

namespace thermocline::store {

// Decode thread only. Write errors are kept and returned by Commit.
class TraceWriter {
 public:
  struct Shape {
    int num_hidden_layers = 0, intermediate_size = 0;  // L, F
    std::string model_hash;
  };
  static Result<std::unique_ptr<TraceWriter>> Create(const std::string& path, const Shape& shape);
  // Adds the neurons that a token needs of the next layer, ascending. Layers come in order.
  void Add(std::span<const int> neurons);
  Status Commit();
  std::int64_t tokens() const { return layers_ / shape_.num_hidden_layers; }

 private:
  TraceWriter(Shape shape, std::unique_ptr<base::FileWriter> file)
      : shape_(std::move(shape)), file_(std::move(file)) {}
  const Shape shape_;
  const std::unique_ptr<base::FileWriter> file_;
  std::int64_t layers_ = 0;
  std::vector<std::byte> record_;
  Status status_;
};

// A whole trace in memory. An incomplete last token is left out.
struct Trace {
  int num_hidden_layers = 0, intermediate_size = 0;
  std::string model_hash;
  std::int64_t tokens = 0;
  std::vector<std::uint32_t> neurons;  // all sets, concatenated
  std::vector<std::uint64_t> begin;    // [tokens * L + 1] into neurons

  std::span<const std::uint32_t> Set(std::int64_t token, int layer) const {
    const std::size_t at = token * num_hidden_layers + layer;
    return std::span(neurons).subspan(begin[at], begin[at + 1] - begin[at]);
  }
};
Result<Trace> ReadTrace(const std::string& path);

}  // namespace thermocline::store
