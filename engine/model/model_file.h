// One view of all model formats: configuration, vocabulary, and tensors under GGUF's names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/sampling_params.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/model_config.h"
#include "engine/model/vocabulary.h"
#include "kernels/types.h"

namespace thermocline::model {

// An element type that a file may store. Types without kernels are listed too, so that messages can
// name them.
struct FileType {
  int ggml_id;
  const char* name;
  int block_size;  // elements
  int block_bytes;
  std::optional<kernels::DType> dtype;  // the kernels' name of it, if they can read it
};
const FileType* FindFileType(int ggml_id);
const FileType& FileTypeOf(kernels::DType dtype);

// The location of logical heads' rows in a stored tensor: head h is stored head h / per_group *
// stride + first + h % per_group. Source: Falcon's fused query-key-value tensor has, for each kv
// head, its queries, its key and its value.
struct HeadOrder {
  int head_dim = 0;     // 0 = rows as stored
  bool halves = false;  // a head's rows are stored as rotary halves and read in pairs
  int per_group = 1;
  int stride = 1;
  int first = 0;

  std::int64_t StoredRow(std::int64_t row) const;
};

// Fills a row of a computed tensor, in the tensor's type. Thread-safe.
using RowSource = std::function<Status(std::int64_t row, std::span<std::byte> out)>;
using FloatSource = std::function<Status(std::int64_t row, std::span<float> out)>;

// The location of a part of a tensor whose parts are stored separately.
struct TensorPiece {
  int file = -1;  // -1: not seen yet
  std::uint64_t offset = 0;
};

struct TensorInfo {
  std::string name;  // "blk.0.attn_q.weight"
  const FileType* type = nullptr;
  std::int64_t cols = 0;  // contiguous dimension
  std::int64_t rows = 1;  // product of the others
  int num_dims = 0;
  std::int64_t slabs = 1;    // consecutive matrices: the third dimension, or 1
  int file = 0;              // index into ModelFile::files
  std::uint64_t offset = 0;  // bytes from the start of that file
  std::uint64_t bytes = 0;
  HeadOrder order = {};  // of rows; of elements if num_dims is 1
  float plus = 0;        // added to every element, for norms stored less 1; f32 vectors only
  std::shared_ptr<const RowSource> source = nullptr;  // of computed rows, or null
  std::vector<TensorPiece> pieces = {};  // [slabs] if slabs are stored separately, else empty

  std::uint64_t row_bytes() const { return bytes / rows; }
  // As the kernels count them. Requires: a tensor that was checked.
  int columns() const { return static_cast<int>(cols); }
};

// The largest models have some 200 files, which stay open, and 140,000 tensors.
inline constexpr std::size_t kModelFilesMax = 1000, kModelTensorsMax = 1 << 18;

// Const after Open; reads are thread-safe.
struct ModelFile {
  std::string path;
  std::string format;       // "GGUF v3", "PowerInfer GGUF v3", "llama2.c v0", "Hugging Face"
  bool powerinfer = false;  // GGUF under the magic PWRI (powerinfer.h)
  ModelConfig config;       // valid unless has_weights is false
  bool has_weights = false;
  Vocabulary vocabulary;
  Json metadata{Json::Object()};  // as stored
  SamplingDefaults sampling;      // the recommendations of the model's makers
  std::vector<TensorInfo> tensors;
  std::vector<std::string> left_out;  // tensors of other modalities than text
  std::vector<std::unique_ptr<base::File>> files;
  int decoded_file = -1;  // the one that is decoded from others as it is read, or -1
  // Weights use types that GPUs multiply, too (kernels::DeviceType), instead of the stored ones.
  // Set before loading.
  bool for_device = false;

  const TensorInfo* Find(std::string_view name) const;
  // Adds an f32 vector with data in memory.
  void AddVector(std::string name, std::vector<float> data);
  // Adds an f32 matrix with computed rows.
  void AddMatrix(std::string name, std::int64_t rows, std::int64_t cols, FloatSource source);
  // Adds `slabs` consecutive matrices with `rows` rows each.
  void AddMatrices(std::string name, std::int64_t slabs, std::int64_t rows, std::int64_t cols,
                   FloatSource source);
  // Rows [first, first + count) of `tensor` as stored. Requires: out of count * row_bytes() bytes.
  Status ReadRows(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                  std::span<std::byte> out) const;
  // Returns a type of some matrix that GPUs have no kernels for; null if there is none.
  const FileType* TypeWithoutDeviceKernels() const;
  std::uint64_t bytes() const;  // of all files that are stored
  // As base::File::ReadDirectly, for all files.
  std::string ReadDirectly();

 private:
  Status ReadPieces(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                    std::span<std::byte> out) const;
};

}  // namespace thermocline::model
