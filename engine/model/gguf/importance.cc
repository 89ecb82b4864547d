#include "engine/model/gguf/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/output_file.h"
#include "engine/model/gguf/container.h"
#include "engine/model/gguf/keys.h"
#include "engine/model/gguf/metadata_builder.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30;

// One tensor of the file, with dimensions [rows, cols].
struct Part {
  std::string name;
  const std::vector<float>* data;
  int cols;
};

std::vector<Part> PartsOf(const Importance& importance) {
  std::vector<Part> parts;
  for (const auto& [name, matrix] : importance.matrices) {
    parts.push_back({name + std::string(kSums), &matrix.sums, matrix.columns});
    parts.push_back({name + std::string(kCounts), &matrix.counts, 1});
  }
  return parts;
}

Status CheckSums(const std::string& name, const std::vector<float>& sums) {
  for (const float value : sums) {
    if (!(value >= 0 && value <= 3e38F))
      return base::DataLoss("'", name, "' holds ", value, ", no sum of squares");
  }
  return OkStatus();
}

// Columns that had only zero inputs on the text get this share of the mean as minimum importance,
// so that a block of them is rounded like others.
constexpr double kShareMin = 1e-4;

Status ToMeans(const std::string& name, double count, std::span<float> sums) {
  double mean = 0;
  for (const float sum : sums) mean += sum / count / base::IntSize(sums);
  if (!(mean <= 3e38)) return base::DataLoss("'", name, "' has a mean square of ", mean);
  for (float& sum : sums)
    sum = mean > 0 ? static_cast<float>(std::max(sum / count, kShareMin * mean)) : 1;
  return OkStatus();
}

Result<std::vector<float>> ReadFloats(const base::File& file, const TensorInfo& tensor) {
  if (tensor.type->ggml_id != 0 || tensor.bytes > kBytesMax)
    return base::InvalidArgument("tensor '", tensor.name, "' is no list of f32");
  std::vector<float> out(tensor.bytes / sizeof(float));
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, std::as_writable_bytes(std::span(out))));
  RETURN_IF_ERROR(CheckSums(tensor.name, out));
  return out;
}

Result<Importance> FromGguf(const base::File& file, const GgufContainer& container) {
  const Keys keys(container.metadata);
  ASSIGN_OR_RETURN(const std::string type, keys.String("general.type"));
  if (type != "imatrix") return base::InvalidArgument("general.type is '", type, "', not imatrix");
  Importance out;
  ASSIGN_OR_RETURN(out.datasets, keys.Strings("imatrix.datasets"));
  ASSIGN_OR_RETURN(out.chunks, keys.Int("imatrix.chunk_count", 0));
  ASSIGN_OR_RETURN(out.chunk_tokens, keys.Int("imatrix.chunk_size", 0));
  for (const TensorInfo& tensor : container.tensors) {
    const bool sums = tensor.name.ends_with(kSums);
    if (!sums && !tensor.name.ends_with(kCounts)) continue;
    const std::size_t end = tensor.name.size() - (sums ? kSums : kCounts).size();
    Importance::Matrix& matrix = out.matrices[tensor.name.substr(0, end)];
    ASSIGN_OR_RETURN((sums ? matrix.sums : matrix.counts), ReadFloats(file, tensor));
    if (sums) matrix.columns = tensor.columns();
  }
  for (const auto& [name, matrix] : out.matrices) {
    if (matrix.sums.empty() || matrix.sums.size() != matrix.counts.size() * matrix.columns)
      return base::DataLoss("'", name, "' has ", matrix.sums.size(), " sums and ",
                            matrix.counts.size(), " counts");
  }
  return out;
}

// i32 n; each: i32 length, name, i32 calls, i32 values, f32 values: means times calls. Then i32
// chunks, i32 length, the text's name.
class OldFile {
 public:
  explicit OldFile(std::string bytes) : bytes_(std::move(bytes)) {}

  Result<Importance> Read() {
    Importance out;
    ASSIGN_OR_RETURN(const int count, Int());
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const std::string name, Text());
      ASSIGN_OR_RETURN(const int calls, Int());
      ASSIGN_OR_RETURN(const int values, Int());
      if (name.empty() || calls < 1 || values < 1 || S(values) * sizeof(float) > left())
        return base::DataLoss("entry ", i, " ('", name, "') has ", calls, " calls and ", values,
                              " values, and ", left(), " bytes are left");
      Importance::Matrix& matrix = out.matrices[name];
      matrix.columns = values;
      matrix.sums.resize(values);
      std::memcpy(matrix.sums.data(), bytes_.data() + at_, S(values) * sizeof(float));
      RETURN_IF_ERROR(CheckSums(name, matrix.sums));
      at_ += S(values) * sizeof(float);
      matrix.counts.assign(1, static_cast<float>(calls));
    }
    if (out.matrices.empty()) return base::DataLoss("there are no entries");
    return out;
  }

 private:
  static std::size_t S(int value) { return value; }
  std::size_t left() const { return bytes_.size() - at_; }
  Result<int> Int() {
    std::int32_t value = 0;
    if (left() < sizeof(value)) return base::DataLoss("the file ends at byte ", at_);
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  Result<std::string> Text() {
    ASSIGN_OR_RETURN(const int size, Int());
    if (size < 0 || S(size) > left()) return base::DataLoss("the file ends at byte ", at_);
    at_ += S(size);
    return bytes_.substr(at_ - S(size), S(size));
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<float>> Importance::Of(const std::string& tensor, int experts,
                                          int columns) const {
  const auto found = matrices.find(tensor);
  if (found == matrices.end()) return std::vector<float>();
  const Matrix& m = found->second;
  const std::size_t all = base::Area(experts, columns);
  // Old files have one count, and experts one after the other.
  if (m.sums.size() != all || (m.counts.size() != 1 && base::IntSize(m.counts) != experts))
    return base::InvalidArgument("the importance of '", tensor, "' is of ", m.sums.size(),
                                 " columns, not ", all, ": it is another model's");
  std::vector<float> means(m.sums);
  for (int e = 0; e < experts; ++e) {
    const auto of = std::span(means).subspan(base::Area(e, columns), columns);
    const float count = m.counts[m.counts.size() == 1 ? 0 : e];
    if (count > 0) {
      RETURN_IF_ERROR(ToMeans(tensor, count, of));
    } else {
      std::fill(of.begin(), of.end(), 1.0F);
    }
  }
  return means;
}

Status Importance::CheckReplaceable(const std::string& path) {
  const auto is_importance = [](const base::File& file) { return Read(file.path()).ok(); };
  return base::CheckReplaceable(path, {"an importance matrix", is_importance});
}

Status Importance::Write(const std::string& path) const {
  RETURN_IF_ERROR(CheckReplaceable(path));
  MetadataBuilder metadata, infos;
  metadata.String("general.type", "imatrix");
  metadata.Strings("imatrix.datasets", datasets);
  metadata.Uint("imatrix.chunk_count", chunks);
  metadata.Uint("imatrix.chunk_size", chunk_tokens);
  const std::vector<Part> parts = PartsOf(*this);
  std::uint64_t offset = 0;
  for (const Part& part : parts) {
    infos.Text(part.name);
    infos.Raw(std::uint32_t{2});
    infos.Raw<std::uint64_t>(part.cols);
    infos.Raw<std::uint64_t>(part.data->size() / part.cols);
    infos.Raw(std::uint32_t{0});  // f32
    infos.Raw(offset);
    offset += GgufPadded(part.data->size() * sizeof(float));
  }
  MetadataBuilder head;
  head.Raw(std::uint32_t{0x46554747});  // "GGUF"
  head.Raw(std::uint32_t{3});
  head.Raw<std::uint64_t>(parts.size());
  head.Raw(metadata.count());
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  const auto pad = [&] {
    return file->Append(
        std::string(GgufPadded(file->bytes_written()) - file->bytes_written(), '\0'));
  };
  for (const std::string* bytes : {&head.bytes(), &metadata.bytes(), &infos.bytes()})
    RETURN_IF_ERROR(file->Append(*bytes));
  RETURN_IF_ERROR(pad());
  for (const Part& part : parts) {
    RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(*part.data))));
    RETURN_IF_ERROR(pad());
  }
  return file->Commit();
}

Result<Importance> Importance::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  std::uint32_t magic = 0;
  if (file->size() >= sizeof(magic))
    RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(&magic, 1))));
  if (magic == 0x46554747) {
    ASSIGN_OR_RETURN(const GgufContainer container, ReadGgufContainer(*file, 0));
    auto out = FromGguf(*file, container);
    return out.ok() ? out : out.status().Annotate(path);
  }
  ASSIGN_OR_RETURN(std::string bytes, base::ReadFileToString(path, kBytesMax));
  auto out = OldFile(std::move(bytes)).Read();
  return out.ok() ? out : out.status().Annotate(StrCat(path, ": no importance matrix"));
}

}  // namespace thermocline::model
