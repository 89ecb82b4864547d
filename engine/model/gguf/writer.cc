#include "engine/model/gguf/writer.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/ratio.h"
#include "engine/base/worker_pool.h"
#include "engine/model/gguf/metadata_builder.h"
#include "engine/model/gguf/plan.h"
#include "engine/model/transpose.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;
constexpr std::int64_t kRowsAtOnce = 256;  // between two writes

std::uint32_t FileTypeId(const std::optional<DType>& type) {
  return kernels::Traits(type.value_or(DType::kF16)).gguf_file_type;
}

Status WritePadding(base::FileWriter& file) {
  const std::string zeros(GgufPadded(file.bytes_written()) - file.bytes_written(), '\0');
  return file.Append(zeros);
}

// Converts one row to the type of the file. `importance`: of the row's columns, or null.
Status ConvertRow(const ModelFile& model, const TensorInfo& tensor, std::int64_t row, DType type,
                  const float* importance, std::span<std::byte> out) {
  const int cols = tensor.columns();
  std::vector<std::byte> stored(tensor.row_bytes());
  std::vector<float> values(cols);
  RETURN_IF_ERROR(model.ReadRows(tensor, row, 1, stored));
  kernels::DequantizeRow(*tensor.type->dtype, base::Octets(stored.data()), cols, values.data());
  for (float& value : values) value += tensor.plus;
  kernels::QuantizeRow(type, values.data(), cols, base::Octets(out.data()), importance);
  return OkStatus();
}

// Appends rows in batches, each row made by `make_row(row, out)` on any thread.
template <typename MakeRow>
Status AppendRows(std::int64_t rows, std::size_t row_bytes, const MakeRow& make_row,
                  base::WorkerPool& pool, base::FileWriter& file) {
  std::vector<std::byte> out(row_bytes * kRowsAtOnce);
  std::vector<Status> status(kRowsAtOnce);
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - first);
    const auto batch = std::span(out).first(row_bytes * count);
    pool.Run(static_cast<int>(count), [&](int row, int) {
      const std::size_t at = row;
      status[at] = make_row(first + row, batch.subspan(at * row_bytes, row_bytes));
    });
    for (const Status& each : std::span(status).first(count)) RETURN_IF_ERROR(each);
    RETURN_IF_ERROR(file.Append(batch));
  }
  return OkStatus();
}

Status CopyRows(const ModelFile& model, const TensorInfo& tensor, base::FileWriter& file) {
  std::vector<std::byte> out(tensor.row_bytes() * kRowsAtOnce);
  for (std::int64_t first = 0; first < tensor.rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, tensor.rows - first);
    const auto rows = std::span(out).first(tensor.row_bytes() * count);
    RETURN_IF_ERROR(model.ReadRows(tensor, first, count, rows));
    RETURN_IF_ERROR(file.Append(rows));
  }
  return OkStatus();
}

// Works on a strip of columns at a time, which bounds the memory and the number of passes over the
// source.
Status WriteTransposed(const ModelFile& model, const PlannedTensor& planned,
                       const GgufWriteOptions& options, base::WorkerPool& pool,
                       base::FileWriter& file) {
  const std::int64_t cols = planned.cols();
  // All columns of a neuron's row have the same importance.
  std::vector<float> importance;
  if (options.importance != nullptr && !planned.name.ends_with("_t.weight")) {
    ASSIGN_OR_RETURN(importance, options.importance->Of(planned.name, 1, static_cast<int>(cols)));
  }
  const std::int64_t strip = std::min(planned.rows(), ColumnsAtOnce(cols));
  std::vector<float> values(strip * cols);
  for (std::int64_t first = 0; first < planned.rows(); first += strip) {
    const std::int64_t count = std::min(strip, planned.rows() - first);
    const auto columns = std::span(values).first(count * cols);
    RETURN_IF_ERROR(ReadColumns(model, *planned.tensor, first, count, pool, columns));
    const auto make_row = [&](std::int64_t row, std::span<std::byte> out) {
      kernels::QuantizeRow(planned.type, &columns[row * cols], static_cast<int>(cols),
                           base::Octets(out.data()),
                           importance.empty() ? nullptr : importance.data());
      return OkStatus();
    };
    RETURN_IF_ERROR(AppendRows(count, kernels::RowBytes(planned.type, static_cast<int>(cols)),
                               make_row, pool, file));
  }
  return OkStatus();
}

// Returns the importance of all columns of a tensor's matrices; empty if it is not known.
Result<std::vector<float>> ImportanceOf(const GgufWriteOptions& options, const TensorInfo& tensor) {
  if (options.importance == nullptr || tensor.num_dims < 2) return std::vector<float>();
  return options.importance->Of(tensor.name, static_cast<int>(tensor.slabs), tensor.columns());
}

// Copies, transposes or requantises one tensor.
Status WriteTensor(const ModelFile& model, const PlannedTensor& planned,
                   const GgufWriteOptions& options, base::WorkerPool& pool,
                   base::FileWriter& file) {
  const TensorInfo& tensor = *planned.tensor;
  if (planned.transposed) {
    RETURN_IF_ERROR(WriteTransposed(model, planned, options, pool, file));
    return WritePadding(file);
  }
  const bool same = *tensor.type->dtype == planned.type && tensor.plus == 0;
  if (same && tensor.source == nullptr) {
    RETURN_IF_ERROR(CopyRows(model, tensor, file));
  } else {
    ASSIGN_OR_RETURN(const std::vector<float> importance, ImportanceOf(options, tensor));
    const std::int64_t slab_rows = tensor.rows / tensor.slabs;
    const auto make_row = [&](std::int64_t row, std::span<std::byte> out) {
      if (same) return model.ReadRows(tensor, row, 1, out);
      const float* of =
          importance.empty() ? nullptr : importance.data() + row / slab_rows * tensor.cols;
      return ConvertRow(model, tensor, row, planned.type, of, out);
    };
    RETURN_IF_ERROR(AppendRows(tensor.rows, kernels::RowBytes(planned.type, tensor.columns()),
                               make_row, pool, file));
  }
  return WritePadding(file);
}

}  // namespace

std::vector<std::string> QuantizableTypes() {
  std::vector<std::string> names;
  for (const kernels::DTypeTraits& type : kernels::kDTypeTraits) names.push_back(type.name);
  for (const char* mix :
       {"q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m"})
    names.emplace_back(mix);
  return names;
}

std::optional<DType> TypeByName(std::string name) {
  const std::size_t mix = name.find("_k_");
  if (mix != std::string::npos) name.resize(mix + 2);
  for (int i = 0; i < kernels::kNumDTypes; ++i) {
    if (name == kernels::kDTypeTraits[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

Status WriteGguf(const ModelFile& model, const std::string& path, const GgufWriteOptions& options) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path,
                                 ": holds a vocabulary only, there is nothing to convert");
  MetadataBuilder metadata;
  metadata.String("general.architecture", std::string(model.config.architecture->name));
  metadata.String("general.name", options.name);
  metadata.Uint("general.file_type", FileTypeId(options.type));
  metadata.Uint("general.quantization_version", 2);
  AddModelMetadata(model, metadata);

  ASSIGN_OR_RETURN(const std::vector<PlannedTensor> plan, PlanGguf(model, options));
  MetadataBuilder infos;
  std::uint64_t offset = 0;
  for (const PlannedTensor& tensor : plan) {
    const std::int64_t slabs = tensor.tensor->slabs;
    const bool matrix = tensor.tensor->num_dims >= 2;
    infos.Text(tensor.name);
    infos.Raw(std::uint32_t{slabs > 1 ? 3U : matrix ? 2U : 1U});
    infos.Raw<std::uint64_t>(tensor.cols());
    if (matrix) infos.Raw<std::uint64_t>(tensor.rows() / slabs);
    if (slabs > 1) infos.Raw<std::uint64_t>(slabs);
    infos.Raw<std::uint32_t>(FileTypeOf(tensor.type).ggml_id);
    infos.Raw(offset);
    offset +=
        GgufPadded(tensor.rows() * kernels::RowBytes(tensor.type, static_cast<int>(tensor.cols())));
  }
  MetadataBuilder head;
  head.Raw(std::uint32_t{options.powerinfer ? 0x49525750U : 0x46554747U});  // "PWRI", "GGUF"
  head.Raw(std::uint32_t{3});
  head.Raw<std::uint64_t>(plan.size());
  head.Raw(metadata.count());

  base::WorkerPool pool(options.threads);
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(head.bytes()));
  RETURN_IF_ERROR(file->Append(metadata.bytes()));
  RETURN_IF_ERROR(file->Append(infos.bytes()));
  RETURN_IF_ERROR(WritePadding(*file));
  for (std::size_t i = 0; i < plan.size(); ++i) {
    RETURN_IF_ERROR(WriteTensor(model, plan[i], options, pool, *file));
    if (options.on_progress) options.on_progress(base::Ratio(i + 1, plan.size()));
  }
  return file->Commit();
}

}  // namespace thermocline::model
