// The host's memory for a model on an emulated device: no weight is held twice, and all weights
// that a device needs after losing its memory are held.
#include <sys/mman.h>

#include <fstream>

#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

class DeviceMemory : public OnDevice {
 protected:
  // Bytes of resident pages of `memory`.
  static std::size_t Resident(const base::HugeBuffer& memory) {
    constexpr std::size_t kPage = 4096;
    std::vector<unsigned char> pages((memory.size() + kPage - 1) / kPage);
    EXPECT_EQ(::mincore(const_cast<std::byte*>(memory.data()), memory.size(), pages.data()), 0);
    const auto used = std::count_if(pages.begin(), pages.end(), [](auto p) { return p & 1; });
    return static_cast<std::size_t>(used) * kPage;
  }

  // Compares the logits of a few tokens before the device fails with those of a new sequence
  // afterwards.
  static void ExpectTheSameAfterAFault(const load::LoadedModel& model, const std::string& what) {
    const auto transformer = model.MakeTransformer(8, exec::kDeviceContext);
    const auto cache = *model.MakeCache(exec::kDeviceContext);
    const auto want = Decode(model, *transformer, *cache, 3);
    ASSERT_TRUE(want.ok()) << what;
    cuda_emulated::Inject({.after = 2, .error = cudaErrorUnknown, .sticky = true});
    EXPECT_FALSE(Decode(model, *transformer, *cache, 3).ok()) << what;
    cache->Clear();
    const auto again = Decode(model, *transformer, *cache, 3);
    ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
    EXPECT_EQ(*again, *want) << what;
  }

  std::string CopyOf(const std::string& path) const {
    const std::string copy = folder_ + "/copy.gguf";
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    return copy;
  }
};

TEST_F(DeviceMemory, TheHostKeepsNothingThatOnlyTheDeviceNeeds) {
  for (const std::string& path : {exec::kTidepool, exec::Family("llama3")}) {
    for (const int home : {2, 1 << 20}) {
      const auto model = exec::Load({.path = path});
      ASSERT_NE(model, nullptr);
      base::HugeBuffer& memory = model->weights->memory;
      ASSERT_EQ(memory.held(), memory.size());
      ASSERT_TRUE(exec::Place(*model, {.home_layers = home, .cpu_layers_too = false}).ok());
      std::size_t matrices = 0, pages = 0;
      const int layers = model->config.num_hidden_layers;
      for (int l = 0; l < layers; ++l) {
        const model::LayerWeights& w = model->weights->layers[static_cast<std::size_t>(l)];
        const bool rows = model->weights->has_down_rows();
        for (const model::Linear* m : {&w.q, &w.k, &w.v, &w.attn_output, &w.up.linear}) {
          const bool freed = l < home && !(rows && m == &w.up.linear);
          EXPECT_EQ(m->weight.data == nullptr, freed) << path << " " << l;
          if (l >= home) continue;
          matrices += m->weight.bytes();
          pages += 2;
        }
      }
      // The first and last page of a matrix may belong to others, too.
      EXPECT_GE(memory.size() - memory.held() + pages * 4096, matrices) << path;
      EXPECT_LT(memory.held(), memory.size());
      EXPECT_LE(Resident(memory), memory.held() + 4096) << path;
      EXPECT_GT(Generate(*model, 4, 2).logits.size(), 0U);
      EXPECT_LE(Resident(memory), memory.held() + 4096) << path << ", after decoding";
    }
  }
}

// The host audits a shadow of layers that a device computes whole, so it keeps their weights.
TEST_F(DeviceMemory, AuditsOfWholeLayersKeepTheNetworks) {
  const std::string path = Convert(exec::kTidepoolFolder, {.down = model::DownLayout::kColumns});
  const auto model = exec::LoadPlaced(
      {.path = path, .modes = "exact", .audit_interval = 1, .audit_shadow = AuditShadow::kSign},
      {});
  ASSERT_NE(model, nullptr);
  ASSERT_TRUE(model->audits());
  const model::LayerWeights& w = model->weights->layers[0];
  EXPECT_NE(w.up.linear.weight.data, nullptr);
  EXPECT_NE(w.down.weight.data, nullptr);
  EXPECT_EQ(w.q.weight.data, nullptr);
}

TEST_F(DeviceMemory, ADeviceThatLostItsMemoryHasTheSameFromTheFile) {
  const std::string columns = Convert(
      exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0, .down = model::DownLayout::kColumns});
  const struct {
    exec::How how;
    exec::Where where;
    const char* what;
  } cases[] = {
      {{.path = exec::kTidepool, .modes = "sign"}, {}, "all of a neuron-major model"},
      {{.path = exec::kTidepool, .modes = "exact"}, {.home_layers = 2, .every = 3}, "a part of it"},
      {{.path = exec::Family("llama3")}, {}, "panels and the head"},
      {{.path = exec::Family("phi2")}, {.home_layers = 1}, "biases"},
      {{.path = columns, .modes = "exact"}, {}, "gate and up as rows, down as panels"},
      {{.path = columns, .modes = "exact", .down = DownInMemory::kRows}, {.every = 2}, "turned"}};
  for (const auto& each : cases) {
    const auto model = exec::LoadPlaced(each.how, each.where);
    ASSERT_NE(model, nullptr) << each.what;
    ExpectTheSameAfterAFault(*model, each.what);
  }
}

TEST_F(DeviceMemory, AHeadRoundedAtLoadIsRoundedAgain) {
  load::LoadOptions options;
  options.model.path = exec::Family("llama3");
  options.model.threads = 1;
  options.model.kv_type = kernels::KvType::kF32;
  options.model.quantize_head = true;
  const auto model = load::LoadModel(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(exec::Place(**model, {}).ok());
  ASSERT_EQ((*model)->device->output().weight.type, kernels::DType::kQ8_0);
  ExpectTheSameAfterAFault(**model, "a rounded head");
}

// The loaded file is read again, even if another file has its name.
TEST_F(DeviceMemory, AReplacedFileIsNotReadInstead) {
  const std::string path = CopyOf(exec::kTidepool);
  const auto model = exec::LoadPlaced({.path = path, .modes = "exact"}, {});
  ASSERT_NE(model, nullptr);
  std::filesystem::remove(path);
  std::ofstream(path) << "another model";
  ExpectTheSameAfterAFault(*model, "replaced");
}

TEST_F(DeviceMemory, AFileThatLostItsEndIsTheEnd) {
  const std::string path = CopyOf(exec::kTidepool);
  const auto model = exec::LoadPlaced({.path = path, .modes = "exact"}, {});
  ASSERT_NE(model, nullptr);
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  cuda_emulated::Inject({.after = 2, .error = cudaErrorUnknown, .sticky = true});
  EXPECT_FALSE(Decode(*model, *transformer, *cache, 3).ok());
  cache->Clear();
  const auto lost = Decode(*model, *transformer, *cache, 3);
  ASSERT_FALSE(lost.ok());
  EXPECT_NE(lost.status().message().find("only the GPU held"), std::string::npos)
      << lost.status().message();
  EXPECT_NE(lost.status().message().find("truncated"), std::string::npos);
  EXPECT_TRUE(model->device_forward->dead());
}

}  // namespace
}  // namespace thermocline::gpu
