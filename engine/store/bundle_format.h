// The bundle file of a model, MODEL.tcb: its feed-forward neurons (or, for models without zeros,
// whole layers) in the layout that the kernels use, so that data read from flash needs no
// conversion.
//
// All numbers are little-endian.
//   offset 0   8 bytes  magic "TCBUNDLE"
//          8   u32      version, 1
//         12   u32      bytes of the JSON header
//         16   u64      bytes of the whole file
//         24   u64      offset of the data, a multiple of 4096
//         32   JSON     the header; zeros up to a multiple of 64
//              arrays   the index, each at a multiple of 64 bytes; then zeros
//              u64 u64  the last 16 bytes before the data: XXH3-128 (low, high) of all before them
//              data     layer by layer: groups of bundles, or the layer's image; each group and
//                       image at a multiple of 4096, zeros between
// The header:
//   {"kind": "neurons" or "layers", "model_hash", "hidden_size", "intermediate_size": neurons of a
//    layer, or experts, "num_hidden_layers", "profiled_tokens", "order": how the neurons were
//    ordered, in words,
//    of neurons: "layout": {"gate_type": of kernels/types.h, or "" without a gate, "up_type",
//                           "down_type", "neurons_per_group", "group_stride",
//                           "expert_neurons": of experts, how many neurons each has},
//    of layers: "image_bytes",
//    "layers": [of neurons: {"position": u32 [F], "head_crc": u32 [F], "rest_crc": u32 [F],
//                            "activations": u32 [F], or absent}
//               of layers: {"image_crc": u32 [image_bytes / 1 MiB, rounded up]}]}
// An array is {"at": bytes from the end of the padded header, "count": elements}. Neuron n of a
// layer is bundle position[n] % neurons_per_group of its group position[n] / neurons_per_group.
//
// While it is written, the file is MODEL.tcb.part (bundle_writer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "kernels/types.h"

namespace thermocline::store {

inline constexpr std::size_t kBundleAlignment = 4096;
inline constexpr std::size_t kLayerCheckBytes = std::size_t{1} << 20;

// A neuron's bundle is [gate | up | down], each a row of kernels/rows.h; without a gate [up |
// down]. The deciding row (gate, or up without a gate) determines if the neuron is active; the rest
// is the rows after it. Bundles of a group lie one behind the other.
//
// In a mixture of experts a bundle holds an expert instead of a neuron: its bundle is [gate | up |
// down], each a matrix in panels (kernels/types.h), as many bytes as one row with all its elements.
struct NeuronLayout {
  int expert_neurons = 0;  // of an expert; 0: bundles are of single neurons
  bool gated = true;
  kernels::DType gate_type = kernels::DType::kF32, up_type = kernels::DType::kF32,
                 down_type = kernels::DType::kF32;
  std::size_t gate_bytes = 0;  // of a row; 0 without a gate
  std::size_t up_bytes = 0, down_bytes = 0;
  int neurons_per_group = 1;
  std::size_t group_stride = 0;  // bytes from group to group, a multiple of kBundleAlignment

  std::size_t bundle_bytes() const { return gate_bytes + up_bytes + down_bytes; }
  std::size_t deciding_bytes() const { return gated ? gate_bytes : up_bytes; }
  bool of_experts() const { return expert_neurons > 0; }
  // Elements of a bundle's row; for a single neuron, `hidden_size`.
  std::int64_t row_elements(int hidden_size) const {
    return std::int64_t{hidden_size} * (of_experts() ? expert_neurons : 1);
  }
  // Sets the bytes of the rows. Requires: the types are set; rows are whole blocks.
  void SetRowBytes(int hidden_size);
};

// The contents of the file, without the data. Const after reading.
struct BundleIndex {
  enum class Kind { kNeurons, kLayers };
  Kind kind = Kind::kNeurons;
  std::string model_hash;  // model::Fingerprint
  int hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  std::uint64_t data_offset = 0, file_bytes = 0;

  // kNeurons
  NeuronLayout layout = {};
  struct Layer {
    std::vector<std::uint32_t> position;      // [F] place of each neuron in the layer's order
    std::vector<std::uint32_t> deciding_crc;  // [F] CRC32C of its deciding row: "head_crc"
    std::vector<std::uint32_t> rest_crc;      // [F] and of its rest
    std::vector<std::uint32_t> activations;   // [F] number of tokens that activated it, or empty
  };
  std::vector<Layer> layers = {};  // [L]
  std::int64_t profiled_tokens = 0;
  std::string order = {};  // how the neurons were ordered, for people

  // kLayers: the image of a layer, as described by model::LayerImage.
  std::uint64_t image_bytes = 0;  // of every layer, a multiple of kBundleAlignment
  std::vector<std::vector<std::uint32_t>> image_crc =
      {};  // [L][each kLayerCheckBytes, the last shorter]

  std::uint64_t groups_per_layer() const {
    const std::uint64_t n = layout.neurons_per_group;
    return (intermediate_size + n - 1) / n;
  }
  // The offset of a neuron's bundle in the file.
  std::uint64_t BundleOffset(int layer, int neuron) const {
    const std::uint64_t n = layout.neurons_per_group;
    const std::uint64_t at = layers[layer].position[neuron];
    return data_offset + (layer * groups_per_layer() + at / n) * layout.group_stride +
           at % n * layout.bundle_bytes();
  }
  std::uint64_t ImageOffset(int layer) const { return data_offset + layer * image_bytes; }
};

// The properties that a bundle file must match.
struct BundleIdentity {
  std::string model_hash;
  int hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  int expert_neurons = 0;  // as NeuronLayout
};

std::string BundlePath(const std::string& model_path);  // MODEL.tcb

// NotFound; DataLoss: the file is truncated, or its header or index is corrupt; FailedPrecondition:
// the file belongs to another model; Unimplemented: the file has a newer version; InvalidArgument:
// impossible sizes or numbers. All messages name the file, the field, the value found and the value
// expected. The data is not read: its CRCs are checked on use.
Result<BundleIndex> ReadBundleIndex(const std::string& path, const BundleIdentity& expected);

}  // namespace thermocline::store
