// Reader of llama2.c checkpoints, versions 0 and 1, with their tokenizer.bin.
//
//   v0 := dim hidden layers heads kv_heads vocab seq : i32   (vocab < 0: the head is not tied)
//         tok_emb att_norm* wq* wk* wv* wo* ffn_norm* w1* w2* w3* norm rope_cos rope_sin [head]
//   v1 := "ak42" 1 dim hidden layers heads kv_heads vocab seq tied:u8, padded to 256 bytes
//         att_norm* ffn_norm* norm tok_emb wq* wk* wv* wo* w1* w2* w3* [head]
//   x* is x for every layer; all values are float32. w1, w2, w3 are gate, down, up.
//   tokenizer.bin := max_length:u32 (score:f32 length:u32 bytes)*
#include "engine/model/open/llama2c.h"

#include <array>
#include <filesystem>

#include "engine/model/byte_reader.h"

namespace thermocline::model {
namespace {

// Appends tensors one after the other.
class FloatLayout {
 public:
  FloatLayout(ModelFile& model, std::uint64_t offset) : model_(model), offset_(offset) {}

  void Add(const std::string& name, std::int64_t rows, std::int64_t cols) {
    TensorInfo tensor{.name = name,
                      .type = FindFileType(0),
                      .cols = cols,
                      .rows = rows,
                      .num_dims = rows == 1 ? 1 : 2,
                      .offset = offset_};
    tensor.bytes = static_cast<std::uint64_t>(rows * cols) * 4;
    offset_ += tensor.bytes;
    model_.tensors.push_back(std::move(tensor));
  }
  void AddLayers(const char* name, std::int64_t rows, std::int64_t cols) {
    for (int i = 0; i < model_.config.num_hidden_layers; ++i)
      Add(StrCat("blk.", i, ".", name, ".weight"), rows, cols);
  }
  void Skip(std::int64_t floats) { offset_ += static_cast<std::uint64_t>(floats) * 4; }
  std::uint64_t end() const { return offset_; }

 private:
  ModelFile& model_;
  std::uint64_t offset_;
};

void AddAttention(FloatLayout& layout, const ModelConfig& c) {
  const std::int64_t d = c.hidden_size, kv = std::int64_t{c.num_key_value_heads} * c.head_dim;
  layout.AddLayers("attn_q", d, d);
  layout.AddLayers("attn_k", kv, d);
  layout.AddLayers("attn_v", kv, d);
  layout.AddLayers("attn_output", d, d);
}

void AddFeedForward(FloatLayout& layout, const ModelConfig& c) {
  layout.AddLayers("ffn_gate", c.intermediate_size, c.hidden_size);
  layout.AddLayers("ffn_down", c.hidden_size, c.intermediate_size);
  layout.AddLayers("ffn_up", c.intermediate_size, c.hidden_size);
}

std::uint64_t AddTensors(ModelFile& model, int version) {
  const ModelConfig& c = model.config;
  FloatLayout layout(model, version == 0 ? 28 : 256);
  if (version == 0) {
    layout.Add("token_embd.weight", c.vocab_size, c.hidden_size);
    layout.AddLayers("attn_norm", 1, c.hidden_size);
    AddAttention(layout, c);
    layout.AddLayers("ffn_norm", 1, c.hidden_size);
    AddFeedForward(layout, c);
    layout.Add("output_norm.weight", 1, c.hidden_size);
    layout.Skip(std::int64_t{c.max_position_embeddings} * c.head_dim);
  } else {
    layout.AddLayers("attn_norm", 1, c.hidden_size);
    layout.AddLayers("ffn_norm", 1, c.hidden_size);
    layout.Add("output_norm.weight", 1, c.hidden_size);
    layout.Add("token_embd.weight", c.vocab_size, c.hidden_size);
    AddAttention(layout, c);
    AddFeedForward(layout, c);
  }
  if (!c.tie_word_embeddings) layout.Add("output.weight", c.vocab_size, c.hidden_size);
  return layout.end();
}

Status ReadHeader(ByteReader& in, int version, ModelConfig& c) {
  std::array<std::int32_t, 7> fields{};
  for (std::int32_t& field : fields) {
    ASSIGN_OR_RETURN(field, in.Read<std::int32_t>("header"));
  }
  ASSIGN_OR_RETURN(c.architecture, FindArchitecture("llama"));
  c.hidden_size = fields[0];
  c.intermediate_size = fields[1];
  c.num_hidden_layers = fields[2];
  c.num_attention_heads = fields[3];
  c.num_key_value_heads = fields[4];
  c.max_position_embeddings = fields[6];
  c.tie_word_embeddings = fields[5] > 0;
  c.vocab_size = fields[5] > 0 ? fields[5] : (fields[5] == INT32_MIN ? 0 : -fields[5]);
  if (version == 1) {
    ASSIGN_OR_RETURN(const auto tied, in.Read<std::uint8_t>("tied flag"));
    c.tie_word_embeddings = tied != 0;
  }
  c.head_dim = c.rope.dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  RETURN_IF_ERROR(ValidateConfig(c));
  if (c.head_dim * c.num_attention_heads != c.hidden_size) {
    return base::InvalidArgument("hidden_size ", c.hidden_size,
                                 " is no multiple of num_attention_heads ", c.num_attention_heads);
  }
  return OkStatus();
}

// tokenizer.bin beside the model, or llama2.c's tok512.bin for a vocabulary of 512.
Result<std::string> FindTokenizer(const std::string& model_path, int vocab_size) {
  const std::filesystem::path folder = std::filesystem::path(model_path).parent_path();
  const std::array names = {std::string("tokenizer.bin"), StrCat("tok", vocab_size, ".bin")};
  for (auto it = names.rbegin(); it != names.rend(); ++it) {
    const std::string path = (folder / *it).string();
    if (base::PathExists(path)) return path;
  }
  return base::NotFound(model_path, ": no tokenizer: put ", names[0], " or ", names[1],
                        " beside it");
}

}  // namespace

Result<Vocabulary> ReadLlama2cTokenizer(const std::string& path, int vocab_size) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFileToString(path));
  ByteReader in{std::as_bytes(std::span<const char>(bytes))};
  Vocabulary v;
  v.kind = VocabularyKind::kSentencePiece;
  v.bos = 1;
  v.eos = 2;
  v.unk = 0;
  v.add_bos = true;
  v.add_space_prefix = true;
  const auto read_token = [&](int id) -> Status {
    ASSIGN_OR_RETURN(const auto score, in.Read<float>(StrCat("score of token ", id)));
    ASSIGN_OR_RETURN(const auto length, in.Read<std::uint32_t>(StrCat("length of token ", id)));
    ASSIGN_OR_RETURN(const std::string text, in.ReadString(StrCat("token ", id), length));
    std::string token;
    for (const char c : text) token += c == ' ' ? "\u2581" : std::string(1, c);
    if (id == v.bos) token = "<s>";
    if (id == v.eos) token = "</s>";
    v.types.push_back(id == 0                      ? TokenType::kUnknown
                      : id <= 2                    ? TokenType::kControl
                      : ParseByteToken(token) >= 0 ? TokenType::kByte
                                                   : TokenType::kNormal);
    v.tokens.push_back(std::move(token));
    v.scores.push_back(score);
    return OkStatus();
  };
  Status status = in.Read<std::uint32_t>("max_token_length").status();
  for (int id = 0; status.ok() && id < vocab_size; ++id) status = read_token(id);
  if (status.ok() && in.remaining() != 0) {
    status = base::InvalidArgument(in.remaining(), " bytes are left behind ", vocab_size,
                                   " tokens; it belongs to another model");
  }
  if (status.ok()) status = ValidateVocabulary(v);
  if (!status.ok()) return status.Annotate(path);
  return v;
}

Result<std::unique_ptr<ModelFile>> OpenLlama2c(const std::string& path) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  ASSIGN_OR_RETURN(auto file, base::OpenFile(path));
  std::array<std::byte, 256> header{};
  const std::size_t header_bytes = std::min<std::size_t>(header.size(), file->size());
  RETURN_IF_ERROR(file->ReadAt(0, std::span(header).first(header_bytes)));
  ByteReader in{std::span<const std::byte>(header).first(header_bytes)};
  int version = 0;
  if (std::memcmp(header.data(), "24ka", 4) == 0) {  // 0x616b3432, little endian
    RETURN_IF_ERROR(in.ReadString("magic", 4).status());
    ASSIGN_OR_RETURN(version, in.Read<std::int32_t>("version"));
    if (version != 1)
      return base::Unimplemented(path, ": llama2.c version ", version,
                                 " is not supported; supported are 0 and 1");
  }
  const Status parsed = ReadHeader(in, version, model->config);
  if (!parsed.ok()) return parsed.Annotate(StrCat(path, ": no llama2.c checkpoint"));
  const std::uint64_t expected = AddTensors(*model, version);
  if (expected != file->size()) {
    return base::DataLoss(path, ": a llama2.c checkpoint of this shape has ", expected,
                          " bytes, the file has ", file->size());
  }
  model->format = StrCat("llama2.c v", version);
  model->has_weights = true;
  model->files.push_back(std::move(file));
  ASSIGN_OR_RETURN(const std::string tokenizer, FindTokenizer(path, model->config.vocab_size));
  ASSIGN_OR_RETURN(model->vocabulary, ReadLlama2cTokenizer(tokenizer, model->config.vocab_size));
  return model;
}

}  // namespace thermocline::model
