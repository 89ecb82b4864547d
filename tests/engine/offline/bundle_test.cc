// Bundle files: written data is read back; damage anywhere is found; an interrupted run resumes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/offline/bundle_writer.h"
#include "engine/store/bundle_format.h"
#include "kernels/crc32c.h"

namespace thermocline::offline {
namespace {

using kernels::DType;

const std::string kHash(32, 'b');
// An earlier file at the bundle's path, which stays until the new bundle is complete.
constexpr const char* kOldFile = "TCBUNDLE, an old one";
constexpr int kHidden = 64, kNeurons = 50, kLayers = 3;
store::BundleIdentity Identity(const std::string& hash = kHash) {
  return {hash, kHidden, kNeurons, kLayers};
}

// A matrix of random bytes.
struct Rows {
  std::vector<std::uint8_t> bytes;
  kernels::RowMatrix matrix;

  Rows(DType type, std::uint32_t seed)
      : bytes(kNeurons * kernels::RowBytes(type, kHidden)),
        matrix{type, kNeurons, kHidden, bytes.data()} {
    std::mt19937 random(seed);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  }
};

struct FakeLayer {
  Rows gate, up, down;
  explicit FakeLayer(std::uint32_t layer)
      : gate(DType::kQ4_0, 3 * layer),
        up(DType::kQ8_0, 3 * layer + 1),
        down(DType::kF16, 3 * layer + 2) {}
  BundleWriter::LayerRows rows() const { return {gate.matrix, up.matrix, down.matrix}; }
};

class BundleTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Groups of seven, and an order that differs from layer to layer.
  static store::BundleIndex Plan(bool gated = true) {
    store::BundleIndex index{.model_hash = kHash,
                             .hidden_size = kHidden,
                             .intermediate_size = kNeurons,
                             .num_hidden_layers = kLayers,
                             .profiled_tokens = 99,
                             .order = "by chance"};
    index.layout = {.gated = gated,
                    .gate_type = DType::kQ4_0,
                    .up_type = DType::kQ8_0,
                    .down_type = DType::kF16,
                    .gate_bytes = gated ? 36UL : 0,
                    .up_bytes = 68,
                    .down_bytes = 128,
                    .neurons_per_group = 7,
                    .group_stride = 4096};
    std::mt19937 random(5);
    index.layers.resize(kLayers);
    for (store::BundleIndex::Layer& layer : index.layers) {
      layer.position.resize(kNeurons);
      std::iota(layer.position.begin(), layer.position.end(), 0);
      std::shuffle(layer.position.begin(), layer.position.end(), random);
      for (std::uint32_t i = 0; i < kNeurons; ++i) layer.activations.push_back(i * 3);
    }
    return index;
  }
  // Writes layers [layers_done, end); completes the file if that is all.
  static void WriteLayers(BundleWriter& writer, int end) {
    while (writer.layers_done() < end) {
      const FakeLayer layer(static_cast<std::uint32_t>(writer.layers_done()));
      ASSERT_TRUE(writer.AddNeurons(layer.rows()).ok());
    }
    if (end < kLayers) return;
    ASSERT_TRUE(writer.Commit().ok());
  }
  std::string Write(const store::BundleIndex& index) {
    auto writer = BundleWriter::Open(path_, index);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    WriteLayers(**writer, kLayers);
    return *base::ReadFileToString(path_);
  }
  Result<store::BundleIndex> ReadBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return store::ReadBundleIndex(path_, Identity());
  }

  const std::string folder_ = StrCat(testing::TempDir(), "bundle-", ::getpid());
  const std::string path_ = folder_ + "/model.gguf.tcb";
};

std::uint32_t Crc(std::string_view bytes) { return kernels::Crc32c(bytes.data(), bytes.size()); }

std::string_view RowText(const Rows& rows, int i) {
  return {reinterpret_cast<const char*>(rows.matrix.row(i)),
          kernels::RowBytes(rows.matrix.type, kHidden)};
}

void ExpectBundles(const store::BundleIndex& index, const std::string& bytes) {
  for (int l = 0; l < kLayers; ++l) {
    const FakeLayer layer(static_cast<std::uint32_t>(l));
    const store::BundleIndex::Layer& read = index.layers[static_cast<std::size_t>(l)];
    for (int i = 0; i < kNeurons; ++i) {
      std::string expected(index.layout.gated ? RowText(layer.gate, i) : "");
      expected += RowText(layer.up, i);
      expected += RowText(layer.down, i);
      const std::uint64_t at = index.BundleOffset(l, i);
      ASSERT_EQ(bytes.substr(at, index.layout.bundle_bytes()), expected) << l << " " << i;
      ASSERT_LE(at % store::kBundleAlignment + expected.size(), index.layout.group_stride);
      const std::size_t head = index.layout.deciding_bytes();
      const auto n = static_cast<std::size_t>(i);
      EXPECT_EQ(read.deciding_crc[n], Crc(std::string_view(expected).substr(0, head)));
      EXPECT_EQ(read.rest_crc[n], Crc(std::string_view(expected).substr(head)));
    }
  }
}

TEST_F(BundleTest, RoundTrip) {
  for (const bool gated : {true, false}) {
    const store::BundleIndex plan = Plan(gated);
    const std::string bytes = Write(plan);
    const auto index = store::ReadBundleIndex(path_, Identity());
    ASSERT_TRUE(index.ok()) << index.status().ToString();
    EXPECT_EQ(index->layout.gated, gated);
    EXPECT_EQ(index->layout.neurons_per_group, 7);
    EXPECT_EQ(index->layout.bundle_bytes(), plan.layout.bundle_bytes());
    EXPECT_EQ(index->groups_per_layer(), 8U);
    EXPECT_EQ(index->profiled_tokens, 99);
    EXPECT_EQ(index->order, "by chance");
    EXPECT_EQ(index->file_bytes, bytes.size());
    EXPECT_EQ(index->data_offset % store::kBundleAlignment, 0U);
    for (std::size_t l = 0; l < kLayers; ++l) {
      EXPECT_EQ(index->layers[l].position, plan.layers[l].position);
      EXPECT_EQ(index->layers[l].activations, plan.layers[l].activations);
    }
    ExpectBundles(*index, bytes);
    EXPECT_FALSE(base::PathExists(path_ + ".part"));
  }
}

TEST_F(BundleTest, ImagesOfLayers) {
  store::BundleIndex plan{.kind = store::BundleIndex::Kind::kLayers,
                          .model_hash = kHash,
                          .hidden_size = kHidden,
                          .intermediate_size = kNeurons,
                          .num_hidden_layers = kLayers};
  plan.image_bytes = (2 << 20) + 8192;
  std::vector<std::byte> image(plan.image_bytes);
  auto writer = BundleWriter::Open(path_, plan);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (int l = 0; l < kLayers; ++l) {
    std::fill(image.begin(), image.end(), static_cast<std::byte>(l + 1));
    ASSERT_TRUE((*writer)->AddImage(image).ok());
  }
  ASSERT_TRUE((*writer)->Commit().ok());
  const auto index = store::ReadBundleIndex(path_, Identity());
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  const std::string bytes = *base::ReadFileToString(path_);
  for (int l = 0; l < kLayers; ++l) {
    const auto& crc = index->image_crc[static_cast<std::size_t>(l)];
    ASSERT_EQ(crc.size(), 3U);
    const std::string_view layer =
        std::string_view(bytes).substr(index->ImageOffset(l), index->image_bytes);
    EXPECT_EQ(layer, std::string(index->image_bytes, static_cast<char>(l + 1)));
    EXPECT_EQ(crc[1], Crc(layer.substr(1 << 20, 1 << 20)));
    EXPECT_EQ(crc[2], Crc(layer.substr(2 << 20)));
  }
}

TEST_F(BundleTest, EveryByteOfHeaderAndIndexCounts) {
  const std::string bytes = Write(Plan());
  const std::uint64_t data = store::ReadBundleIndex(path_, Identity())->data_offset;
  for (std::uint64_t at = 0; at < data; ++at) {
    const char flip = static_cast<char>(1 << at % 8);
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(bytes[at] ^ flip)).flush();
    ASSERT_FALSE(store::ReadBundleIndex(path_, Identity()).ok()) << "byte " << at;
    file.seekp(static_cast<std::streamoff>(at)).put(bytes[at]).flush();
  }
  EXPECT_TRUE(store::ReadBundleIndex(path_, Identity()).ok());
}

TEST_F(BundleTest, CutOffAnywhereIsDataLoss) {
  const std::string bytes = Write(Plan());
  for (std::size_t size = bytes.size(); size-- > 0; size -= std::min<std::size_t>(size, 37)) {
    std::filesystem::resize_file(path_, size);
    ASSERT_EQ(store::ReadBundleIndex(path_, Identity()).status().code(), StatusCode::kDataLoss)
        << size;
  }
}

// Replaces a text of the header by one of the same length, and fixes the checksum.
std::string Edited(std::string bytes, std::string_view old, std::string_view with) {
  EXPECT_EQ(old.size(), with.size());
  const std::size_t at = bytes.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  bytes.replace(at, old.size(), with);
  return bytes;
}
std::string Rehashed(std::string bytes) {
  std::uint64_t data = 0;
  std::memcpy(&data, bytes.data() + 24, 8);
  base::Hasher hasher;
  hasher.Add(std::string_view(bytes).substr(0, data - 16));
  const base::Hash128 hash = hasher.Digest();
  std::memcpy(bytes.data() + data - 16, &hash.low, 8);
  std::memcpy(bytes.data() + data - 8, &hash.high, 8);
  return bytes;
}

// A file with a correct checksum may still contain impossible numbers.
TEST_F(BundleTest, NumbersThatCannotBeAreRefused) {
  const std::string bytes = Write(Plan());
  const std::pair<const char*, const char*> edits[] = {
      {"\"group_stride\":4096", "\"group_stride\":4097"},
      {"\"group_stride\":4096", "\"group_stride\":-096"},
      {"\"neurons_per_group\":7", "\"neurons_per_group\":0"},
      {"\"neurons_per_group\":7", "\"neurons_per_group\":8"},  // other groups, another size
      {"\"neurons_per_group\":7", "\"neurons_per_grouq\":7"},
      {"\"gate_type\":\"q4_0\"", "\"gate_type\":\"q9_0\""},
      {"\"gate_type\":\"q4_0\"", "\"gate_type\":\"q4_k\""},  // rows are not whole blocks
      {"\"up_type\":\"q8_0\"", "\"up_type\":\"q2_k\""},      // neither are these
      {"\"kind\":\"neurons\"", "\"kind\":\"neutron\""},
      {"\"at\":0,\"count\":50", "\"at\":8,\"count\":50"},
      {"\"at\":0,\"count\":50", "\"at\":0,\"count\":51"},
      {"\"at\":256,\"count\":50", "\"at\":1E8,\"count\":50"},
      {"\"at\":256,\"count\":50", "\"at\":960,\"count\":-1"},
      {"\"profiled_tokens\":99", "\"profiled_tokens\":-9"},
      {"\"order\":\"by chance\"", "\"order\":  123456789"},
      {"\"layers\":[", "\"lagers\":["},
  };
  for (const auto& [old, with] : edits) {
    const auto index = ReadBytes(Rehashed(Edited(bytes, old, with)));
    ASSERT_FALSE(index.ok()) << with;
    EXPECT_NE(index.status().message().find(path_), std::string::npos) << index.status().ToString();
    EXPECT_TRUE(index.status().code() == StatusCode::kInvalidArgument ||
                index.status().code() == StatusCode::kDataLoss)
        << with << index.status().ToString();
  }
  // Two neurons at one place.
  std::string twice = bytes;
  std::uint32_t header = 0;
  std::memcpy(&header, bytes.data() + 12, 4);
  const std::size_t positions = (32 + std::size_t{header} + 63) / 64 * 64;
  std::memcpy(twice.data() + positions, twice.data() + positions + 4, 4);
  EXPECT_EQ(ReadBytes(Rehashed(twice)).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BundleTest, OtherModelsAndVersionsAreRefused) {
  const std::string bytes = Write(Plan());
  const auto other = store::ReadBundleIndex(path_, Identity(std::string(32, 'c')));
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(other.status().message().find(kHash), std::string::npos);
  store::BundleIdentity shape = Identity();
  shape.num_hidden_layers = 4;
  EXPECT_EQ(store::ReadBundleIndex(path_, shape).status().code(), StatusCode::kFailedPrecondition);
  shape.num_hidden_layers = 1 << 30;
  EXPECT_EQ(store::ReadBundleIndex(path_, shape).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store::ReadBundleIndex(path_ + "x", Identity()).status().code(), StatusCode::kNotFound);
  std::string newer = bytes;
  newer[8] = 2;
  EXPECT_EQ(ReadBytes(newer).status().code(), StatusCode::kUnimplemented);
}

TEST_F(BundleTest, AStoppedRunGoesOnAndTheOldFileStays) {
  const std::string expected = Write(Plan());
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << kOldFile;
  for (int done = 0; done < kLayers; ++done) {
    auto writer = BundleWriter::Open(path_, Plan());
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    EXPECT_EQ((*writer)->layers_done(), done);
    EXPECT_EQ(*base::ReadFileToString(path_), kOldFile);
    WriteLayers(**writer, done + 1);
  }
  EXPECT_EQ(*base::ReadFileToString(path_), expected);
  EXPECT_FALSE(base::PathExists(path_ + ".part"));
}

TEST_F(BundleTest, APartOfAnotherFileIsNotGoneOnWith) {
  const auto stop_after_two = [&](const store::BundleIndex& index) {
    auto writer = BundleWriter::Open(path_, index);
    ASSERT_TRUE(writer.ok());
    WriteLayers(**writer, 2);
    ASSERT_EQ((*writer)->layers_done(), 2);
  };
  stop_after_two(Plan());
  store::BundleIndex other = Plan();
  std::swap(other.layers[2].position[3], other.layers[2].position[4]);
  stop_after_two(other);  // it started anew, or a third layer would be done
  other.model_hash[0] = 'x';
  auto writer = BundleWriter::Open(path_, other);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->layers_done(), 0);
}

// A disk may lose data that it has acknowledged.
TEST_F(BundleTest, APartWithADamagedLastLayerIsBegunAnew) {
  const std::string expected = Write(Plan());
  std::uint64_t at = 0;
  {
    auto writer = BundleWriter::Open(path_, Plan());
    ASSERT_TRUE(writer.ok());
    WriteLayers(**writer, 2);
    at = (*writer)->index().BundleOffset(1, 17) + 100;
  }
  std::fstream part(path_ + ".part", std::ios::binary | std::ios::in | std::ios::out);
  part.seekp(static_cast<std::streamoff>(at)).put('!').flush();
  auto writer = BundleWriter::Open(path_, Plan());
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->layers_done(), 0);
  WriteLayers(**writer, kLayers);
  EXPECT_EQ(*base::ReadFileToString(path_), expected);
}

TEST_F(BundleTest, TwoWritersAtOnceAreRefused) {
  auto first = BundleWriter::Open(path_, Plan());
  ASSERT_TRUE(first.ok());
  const auto second = BundleWriter::Open(path_, Plan());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(path_ + ".part"), std::string::npos);
  WriteLayers(**first, kLayers);
  EXPECT_TRUE(store::ReadBundleIndex(path_, Identity()).ok());
  EXPECT_TRUE(BundleWriter::Open(path_, Plan()).ok());
}

TEST_F(BundleTest, NoRoomIsSaidBeforeAnythingIsWritten) {
  std::ofstream(path_) << kOldFile;
  store::BundleIndex huge = Plan();
  huge.kind = store::BundleIndex::Kind::kLayers;
  huge.layers.clear();
  huge.image_bytes = std::uint64_t{1} << 43;
  const auto writer = BundleWriter::Open(path_, huge);
  ASSERT_EQ(writer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(writer.status().message().find(path_ + ".part: takes 26388"), std::string::npos)
      << writer.status().ToString();
  EXPECT_FALSE(base::PathExists(path_ + ".part"));
  EXPECT_EQ(*base::ReadFileToString(path_), kOldFile);
}

}  // namespace
}  // namespace thermocline::offline
