#include "engine/store/trace.h"

#include <algorithm>
#include <cstring>

#include "engine/base/output_file.h"

namespace thermocline::store {
namespace {

constexpr std::string_view kMagic = "TCTRACE1";
constexpr std::uint32_t kLayersMax = 1 << 16, kNeuronsMax = 1 << 28, kHashBytesMax = 1024;
constexpr std::uint64_t kTraceBytesMax = std::uint64_t{64} << 30;  // in memory it is larger

void AppendVarint(std::vector<std::byte>& out, std::uint32_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

void AppendU32(std::string& out, std::size_t value) {
  const auto number = static_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(number >> shift));
}

// Walks through the bytes of a trace. After the end or a bad number, nothing more is read.
class Cursor {
 public:
  Cursor(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  std::string_view Text(std::size_t bytes) {
    if (bytes_.size() - at_ < bytes) {
      ended_ = true;
      return {};
    }
    at_ += bytes;
    return bytes_.substr(at_ - bytes, bytes);
  }
  std::uint32_t U32() {
    std::uint32_t value = 0;
    const std::string_view text = Text(4);
    for (std::size_t i = text.size(); i-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(text[i]);
    return value;
  }
  std::uint32_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const std::string_view text = Text(1);
      if (ended_) return 0;
      const std::uint8_t byte = text[0];
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        if (value <= UINT32_MAX) return static_cast<std::uint32_t>(value);
        break;
      }
    }
    Fail("a number of more than 32 bits");
    return 0;
  }
  // Adds the neurons of a layer.
  void ReadSet(std::uint32_t num_neurons, std::vector<std::uint32_t>& out) {
    const std::uint32_t count = Varint();
    if (count > num_neurons) return Fail(StrCat(count, " neurons of ", num_neurons));
    std::uint64_t next = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t neuron = next + Varint();
      if (!good()) return;
      if (neuron >= num_neurons) return Fail(StrCat("neuron ", neuron, " of ", num_neurons));
      out.push_back(static_cast<std::uint32_t>(neuron));
      next = neuron + 1;
    }
  }
  void Fail(std::string_view what) {
    if (status_.ok())
      status_ = base::DataLoss(path_, ": ", what, " before byte ", at_,
                               "; the trace is damaged: record it anew with --record-trace");
  }

  bool ended() const { return ended_; }
  bool good() const { return !ended_ && status_.ok(); }
  bool at_end() const { return at_ == bytes_.size(); }
  const Status& status() const { return status_; }

 private:
  const std::string& path_;
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ended_ = false;
  Status status_;
};

Status ReadHeader(const std::string& path, Cursor& cursor, Trace& trace) {
  if (cursor.Text(kMagic.size()) != kMagic)
    return base::InvalidArgument(path, ": not a trace: it does not begin with ", kMagic,
                                 "; record one with `thermocline run --record-trace`");
  const std::uint32_t l = cursor.U32(), f = cursor.U32(), hash_bytes = cursor.U32();
  if (!cursor.ended() &&
      (l == 0 || l > kLayersMax || f == 0 || f > kNeuronsMax || hash_bytes > kHashBytesMax))
    return base::InvalidArgument(path, ": ", l, " layers of ", f, " neurons, model hash of ",
                                 hash_bytes, " bytes; expected 1 to ", kLayersMax, ", 1 to ",
                                 kNeuronsMax, ", at most ", kHashBytesMax);
  trace.model_hash = cursor.Text(hash_bytes);
  if (cursor.ended()) return base::DataLoss(path, ": the trace is cut off in its header");
  trace.num_hidden_layers = l;
  trace.intermediate_size = f;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path,
                                                         const Shape& shape) {
  CHECK(shape.num_hidden_layers > 0 && shape.intermediate_size > 0);
  RETURN_IF_ERROR(base::CheckReplaceable(path, base::KindByMagic("a trace", kMagic)));
  ASSIGN_OR_RETURN(auto file, base::FileWriter::Create(path));
  std::string header(kMagic);
  AppendU32(header, shape.num_hidden_layers);
  AppendU32(header, shape.intermediate_size);
  AppendU32(header, shape.model_hash.size());
  RETURN_IF_ERROR(file->Append(header + shape.model_hash));
  std::unique_ptr<TraceWriter> writer(new TraceWriter(shape, std::move(file)));
  // Reserves the largest set, at most five bytes per number, so that Add allocates nothing.
  writer->record_.reserve(5UL * (shape.intermediate_size + 1U));
  return writer;
}

void TraceWriter::Add(std::span<const int> neurons) {
  record_.clear();
  AppendVarint(record_, static_cast<std::uint32_t>(neurons.size()));
  int next = 0;
  for (const int neuron : neurons) {
    CHECK(neuron >= next && neuron < shape_.intermediate_size);
    AppendVarint(record_, neuron - next);
    next = neuron + 1;
  }
  if (status_.ok()) status_ = file_->Append(record_);
  ++layers_;
}

Status TraceWriter::Commit() {
  RETURN_IF_ERROR(status_);
  return file_->Commit();
}

Result<Trace> ReadTrace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFileToString(path, kTraceBytesMax));
  Cursor cursor(path, bytes);
  Trace trace;
  RETURN_IF_ERROR(ReadHeader(path, cursor, trace));
  trace.begin.push_back(0);
  while (!cursor.at_end()) {
    const std::size_t whole = trace.neurons.size();
    for (int layer = 0; layer < trace.num_hidden_layers && cursor.good(); ++layer) {
      cursor.ReadSet(trace.intermediate_size, trace.neurons);
      trace.begin.push_back(trace.neurons.size());
    }
    RETURN_IF_ERROR(cursor.status());
    if (cursor.ended()) {
      trace.neurons.resize(whole);
      break;
    }
    ++trace.tokens;
  }
  trace.begin.resize(trace.tokens * trace.num_hidden_layers + 1U);
  return trace;
}

}  // namespace thermocline::store
