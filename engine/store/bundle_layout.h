// The layout that the reader and the writer of bundle files share; the grammar is in
// bundle_format.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "engine/store/bundle_format.h"

namespace thermocline::store {

static_assert(std::endian::native == std::endian::little, "bundle files are written as in memory");

inline constexpr std::string_view kBundleMagic = "TCBUNDLE";
inline constexpr std::uint32_t kBundleVersion = 1;

struct BundlePrefix {
  char magic[8] = {};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t data_offset = 0;
};
static_assert(sizeof(BundlePrefix) == 32);

struct BundleChecksum {
  std::uint64_t low = 0, high = 0;
};
static_assert(sizeof(BundleChecksum) == 16);

// Bounds on the header's values: larger than any model, and small enough that no product of them
// overflows 64 bits.
inline constexpr int kBundleLayersMax = 1 << 12;
inline constexpr int kBundleNeuronsMax = 1 << 22;
inline constexpr int kBundleHiddenMax = 1 << 18;
inline constexpr std::uint64_t kBundleStrideMax = std::uint64_t{1} << 28;
inline constexpr std::uint64_t kBundleImageMax = std::uint64_t{1} << 44;

inline constexpr std::uint64_t BlockAligned(std::uint64_t bytes) {
  return (bytes + kBundleAlignment - 1) / kBundleAlignment * kBundleAlignment;
}

// Bytes of the data that the index describes.
inline std::uint64_t DataBytes(const BundleIndex& index) {
  const std::uint64_t layers = index.num_hidden_layers;
  return index.kind == BundleIndex::Kind::kNeurons
             ? layers * index.groups_per_layer() * index.layout.group_stride
             : layers * index.image_bytes;
}
// CRCs of a layer's image.
inline std::uint64_t ImageChecks(const BundleIndex& index) {
  return (index.image_bytes + kLayerCheckBytes - 1) / kLayerCheckBytes;
}

}  // namespace thermocline::store
