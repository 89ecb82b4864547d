// Reads the tokenizers of Hugging Face folders: tokenizer.model (SentencePiece) or tokenizer.json.
#include "engine/model/huggingface/tokenizer.h"

#include <algorithm>
#include <map>

#include "engine/base/json_limits.h"
#include "engine/model/byte_reader.h"
#include "engine/model/huggingface/folder_config.h"
#include "engine/model/huggingface/tokenizer_parts.h"
#include "engine/model/huggingface/unigram.h"

namespace thermocline::model {
namespace {

// Gemma's file has 33 MiB and two million values: 2^18 tokens and twice as many merges.
constexpr std::size_t kTokenizerValuesMax = 3 << 20;
constexpr std::uint64_t kTokenizerBytesMax = 64 << 20;

// One field of a Protocol Buffers message: a number or a run of bytes.
struct Field {
  int number = 0;
  std::uint64_t value = 0;  // varint, or the raw bits of a fixed field
  std::string_view bytes;   // length-delimited
};

// Walks the fields of a message. Source: the Protocol Buffers wire format.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return position_ == bytes_.size(); }

  Result<Field> Next() {
    ASSIGN_OR_RETURN(const std::uint64_t tag, Varint());
    Field field;
    field.number = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0: {
        ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case 1:
      case 5: {
        const std::size_t width = (tag & 7) == 1 ? 8 : 4;
        ASSIGN_OR_RETURN(const auto raw, Take(width));
        std::memcpy(&field.value, raw.data(), width);
        return field;
      }
      case 2: {
        ASSIGN_OR_RETURN(const std::uint64_t length, Varint());
        ASSIGN_OR_RETURN(field.bytes, Take(length));
        return field;
      }
      default:
        return base::DataLoss("byte ", position_, ": unknown wire type ", tag & 7);
    }
  }

 private:
  Result<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) return base::DataLoss("the message ends inside a number");
      const unsigned char byte = bytes_[position_++];
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    return base::DataLoss("byte ", position_, ": a number longer than 64 bits");
  }
  Result<std::string_view> Take(std::uint64_t length) {
    if (length > bytes_.size() - position_)
      return base::DataLoss("byte ", position_, ": ", length,
                            " bytes wanted, the message ends before");
    const std::string_view out = bytes_.substr(position_, length);
    position_ += length;
    return out;
  }
  std::string_view bytes_;
  std::size_t position_ = 0;
};

// SentencePiece := { piece=1 {text=1, score=2, type=3}, normalizer=3 {add_dummy_prefix=3,
// remove_extra_whitespaces=4} }
Status AddPiece(std::string_view message, Vocabulary& v) {
  constexpr int kPiecesMax = 1 << 20;
  if (v.size() >= kPiecesMax) return base::DataLoss("more than ", kPiecesMax, " pieces");
  std::string text;
  float score = 0;
  std::uint64_t type = 1;
  for (MessageReader in(message); !in.done();) {
    ASSIGN_OR_RETURN(const Field field, in.Next());
    if (field.number == 1) text = field.bytes;
    if (field.number == 2) std::memcpy(&score, &field.value, 4);
    if (field.number == 3) type = field.value;
  }
  if (type < 1 || type > 6)
    return base::DataLoss("piece ", v.tokens.size(), " has the unknown type ", type);
  const auto kind = static_cast<TokenType>(type);
  if (kind == TokenType::kUnknown && v.unk < 0) v.unk = v.size();
  if (text == "<s>") v.bos = v.size();
  if (text == "</s>") v.eos = v.size();
  v.tokens.push_back(std::move(text));
  v.scores.push_back(score);
  v.types.push_back(kind);
  return OkStatus();
}

Status ReadNormalizer(std::string_view message, Vocabulary& v) {
  for (MessageReader in(message); !in.done();) {
    ASSIGN_OR_RETURN(const Field field, in.Next());
    if (field.number == 1 && field.bytes != "identity") {
      return base::Unimplemented("the SentencePiece normalizer '", std::string(field.bytes),
                                 "' is not supported; supported is identity");
    }
    if (field.number == 3) v.add_space_prefix = field.value != 0;
    if (field.number == 4) v.remove_extra_whitespaces = field.value != 0;
  }
  return OkStatus();
}

Status ReadTrainer(std::string_view message) {
  for (MessageReader in(message); !in.done();) {
    ASSIGN_OR_RETURN(const Field field, in.Next());
    if (field.number == 3 && field.value != 2)
      return base::Unimplemented("SentencePiece models of type ", field.value,
                                 " are not supported; supported is BPE (2)");
  }
  return OkStatus();
}

Status ParseSentencePiece(std::string_view bytes, Vocabulary& v) {
  for (MessageReader in(bytes); !in.done();) {
    ASSIGN_OR_RETURN(const Field field, in.Next());
    if (field.number == 1) RETURN_IF_ERROR(AddPiece(field.bytes, v));
    if (field.number == 2) RETURN_IF_ERROR(ReadTrainer(field.bytes));
    if (field.number == 3) RETURN_IF_ERROR(ReadNormalizer(field.bytes, v));
  }
  return ValidateVocabulary(v);
}

Status ReadVocab(const Json& tokenizer, const Json& model, Vocabulary& v) {
  const Json *vocab = model.Find("vocab"), *added = tokenizer.Find("added_tokens");
  if (vocab == nullptr || !vocab->is_object())
    return base::DataLoss("field 'model.vocab' is missing");
  const std::size_t added_count =
      added != nullptr && added->is_array() ? added->as_array().size() : 0;
  const std::size_t count = vocab->as_object().size() + added_count;
  v.tokens.reserve(count);
  const auto place = [&](const std::string& text, const Json& id, TokenType type) -> Status {
    if (!id.is_int() || id.as_int() < 0 || static_cast<std::size_t>(id.as_int()) >= count) {
      return base::DataLoss("token '", text, "' has the id ", id.Dump(),
                            " in a vocabulary of at most ", count);
    }
    const std::size_t at = id.as_int();
    if (at >= v.tokens.size()) {
      v.tokens.resize(at + 1);
      v.types.resize(at + 1, TokenType::kUnused);
    }
    v.tokens[at] = text;
    v.types[at] = type;
    return OkStatus();
  };
  for (const auto& [text, id] : vocab->as_object()) {
    RETURN_IF_ERROR(place(text, id,
                          v.kind == VocabularyKind::kSentencePiece && ParseByteToken(text) >= 0
                              ? TokenType::kByte
                              : TokenType::kNormal));
  }
  for (std::size_t i = 0; i < added_count; ++i) {
    const Json& token = added->as_array()[i];
    const Json *content = token.Find("content"), *id = token.Find("id"),
               *special = token.Find("special");
    if (content == nullptr || !content->is_string() || id == nullptr)
      return base::DataLoss("added_tokens[", i, "] lacks content or id");
    const bool control = special != nullptr && special->is_bool() && special->as_bool();
    RETURN_IF_ERROR(
        place(content->as_string(), *id, control ? TokenType::kControl : TokenType::kUserDefined));
    if (const TokenEdges edges = EdgesOf(token); edges.any())
      v.edges[static_cast<int>(id->as_int())] = edges;
    RETURN_IF_ERROR(CheckNormalized(token, v));
  }
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.tokens[i].empty() && v.types[i] == TokenType::kUnused)
      v.tokens[i] = StrCat("[UNUSED", i, "]");
  }
  return OkStatus();
}

Status ReadMerges(const Json& model, Vocabulary& v) {
  const Json* merges = model.Find("merges");
  if (merges == nullptr || !merges->is_array())
    return base::DataLoss("field 'model.merges' is missing");
  for (const Json& merge : merges->as_array()) {
    if (merge.is_string()) {
      v.merges.push_back(merge.as_string());
    } else if (merge.is_array() && merge.as_array().size() == 2 &&
               merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
      v.merges.push_back(merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
    } else {
      return base::DataLoss("model.merges[", v.merges.size(), "] is no pair of strings");
    }
  }
  return OkStatus();
}

// SentencePiece's scores order the merges; a converted tokenizer.json keeps only the order.
void ScoresFromMerges(Vocabulary& v) {
  std::map<std::string, float> rank;
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    std::string merged = v.merges[i];
    merged.erase(merged.find(' '), 1);
    rank.emplace(std::move(merged), -static_cast<float>(i));
  }
  for (const std::string& token : v.tokens) {
    const auto found = rank.find(token);
    v.scores.push_back(found == rank.end() ? -1e6F : found->second);
  }
  v.merges.clear();
}

// `name`: a token's text, or an object that holds it; null: none.
int FindToken(const Vocabulary& v, const Json* name) {
  if (name != nullptr && name->is_object()) name = name->Find("content");
  return name == nullptr || !name->is_string() ? -1 : FindToken(v, name->as_string());
}

// The pieces of words are stored as in GGUF files.
Status ParseWordPiece(const Json& tokenizer, const Json& model, Vocabulary& v) {
  v.kind = VocabularyKind::kWordPiece;
  RETURN_IF_ERROR(CheckBert(tokenizer, model, v));
  RETURN_IF_ERROR(ReadVocab(tokenizer, model, v));
  v.bos = FindToken(v, "[CLS]");
  v.eos = FindToken(v, "[SEP]");
  const Json* unknown = model.Find("unk_token");
  v.unk = FindToken(v, unknown != nullptr && unknown->is_string() ? unknown->as_string() : "[UNK]");
  v.add_bos = v.bos >= 0;
  v.add_eos = v.eos >= 0;
  v.add_space_prefix = true;
  for (int id = 0; id < v.size(); ++id) {
    if (v.types[id] != TokenType::kNormal) continue;
    std::string& text = v.tokens[id];
    text = text.starts_with("##") ? text.substr(2) : StrCat("\u2581", text);
  }
  return ValidateVocabulary(v);
}

Status ParseTokenizerJson(const Json& tokenizer, Vocabulary& v) {
  const Json* model = tokenizer.Find("model");
  const Json* type = model != nullptr ? model->Find("type") : nullptr;
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "BPE";
  if (kind == "WordPiece") return ParseWordPiece(tokenizer, *model, v);
  if (kind == "Unigram") return ParseUnigram(tokenizer, *model, v);
  if (kind != "BPE")
    return base::Unimplemented("tokenizers of type '", kind,
                               "' are not supported; supported are BPE, WordPiece and Unigram");
  if (model == nullptr) return base::DataLoss("field 'model' is missing");
  for (const char* affix : {"end_of_word_suffix", "continuing_subword_prefix"}) {
    const Json* text = model->Find(affix);
    if (text != nullptr && text->is_string() && !text->as_string().empty())
      return base::Unimplemented("a tokenizer whose model has '", affix, "' is not supported");
  }
  // If every byte has its own token, byte fallback is never needed.
  const Json* pre = tokenizer.Find("pre_tokenizer");
  const bool byte_level = pre != nullptr && pre->Dump().find("\"ByteLevel\"") != std::string::npos;
  const bool sentencepiece = IsTrue(*model, "byte_fallback") && !byte_level;
  v.kind = sentencepiece ? VocabularyKind::kSentencePiece : VocabularyKind::kByteLevelBpe;
  if (!sentencepiece) {
    ASSIGN_OR_RETURN(v.pre_tokenizer, PreTokenizerName(tokenizer, v));
  }
  RETURN_IF_ERROR(ReadNormalizers(tokenizer.Find("normalizer"), v));
  if (!sentencepiece) v.ignore_merges = IsTrue(*model, "ignore_merges");
  RETURN_IF_ERROR(ReadVocab(tokenizer, *model, v));
  RETURN_IF_ERROR(ReadMerges(*model, v));
  if (sentencepiece) {
    ScoresFromMerges(v);
    const Json* normalizer = tokenizer.Find("normalizer");
    v.add_space_prefix =
        normalizer != nullptr && normalizer->Dump().find("Prepend") != std::string::npos;
  }
  return ValidateVocabulary(v);
}

// Adds the tokens that tokenizer.model lacks because they were added later, from tokenizer.json.
Status AddTokensOf(const std::string& path, Vocabulary& v) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, kTokenizerBytesMax));
  const auto tokenizer = base::ParseJsonOf(text, kTokenizerValuesMax);
  if (!tokenizer.ok()) return tokenizer.status().Annotate(path);
  const Json* added = tokenizer->Find("added_tokens");
  const std::size_t known = v.tokens.size(),
                    most = known +
                           (added != nullptr && added->is_array() ? added->as_array().size() : 0);
  for (std::size_t i = 0; added != nullptr && added->is_array() && i < added->as_array().size();
       ++i) {
    const Json& token = added->as_array()[i];
    const Json *content = token.Find("content"), *id = token.Find("id");
    const bool good = content != nullptr && content->is_string() && id != nullptr && id->is_int() &&
                      id->as_int() >= 0 && static_cast<std::size_t>(id->as_int()) < most;
    if (!good)
      return base::DataLoss(path, ": added_tokens[", i, "] lacks content, or an id below ", most);
    const std::size_t at = id->as_int();
    if (at >= v.tokens.size()) {
      v.tokens.resize(at + 1);
      v.types.resize(at + 1, TokenType::kUnused);
      v.scores.resize(at + 1, 0);
    }
    if (const TokenEdges edges = EdgesOf(token); edges.any()) v.edges[static_cast<int>(at)] = edges;
    if (at < known && v.tokens[at] == content->as_string()) continue;
    v.tokens[at] = content->as_string();
    v.types[at] = IsTrue(token, "special") ? TokenType::kControl : TokenType::kUserDefined;
  }
  for (std::size_t i = known; i < v.tokens.size(); ++i)
    if (v.tokens[i].empty()) v.tokens[i] = StrCat("[UNUSED", i, "]");
  return OkStatus();
}

void ApplyTokenizerConfig(const Json& config, Vocabulary& v) {
  if (const int id = FindToken(v, config.Find("bos_token")); id >= 0) v.bos = id;
  if (const int id = FindToken(v, config.Find("eos_token")); id >= 0) v.eos = id;
  const Json *add_bos = config.Find("add_bos_token"), *add_eos = config.Find("add_eos_token"),
             *prefix = config.Find("add_prefix_space"), *chat = config.Find("chat_template");
  if (add_bos != nullptr && add_bos->is_bool()) v.add_bos = add_bos->as_bool();
  if (add_eos != nullptr && add_eos->is_bool()) v.add_eos = add_eos->as_bool();
  if (prefix != nullptr && prefix->is_bool() && v.kind == VocabularyKind::kSentencePiece)
    v.add_space_prefix = prefix->as_bool();
  if (chat != nullptr && chat->is_string()) v.chat_template = chat->as_string();
  if (chat == nullptr || !chat->is_array()) return;
  // Chooses the template named "default", or else the first, and "tool_use" for requests with
  // tools.
  for (const Json& named : chat->as_array()) {
    const Json *name = named.Find("name"), *text = named.Find("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) continue;
    if (name->as_string() == "tool_use") {
      v.tool_template = text->as_string();
    } else if (v.chat_template.empty() || name->as_string() == "default") {
      v.chat_template = text->as_string();
    }
  }
}

}  // namespace

Result<Vocabulary> ReadSentencePieceModel(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFileToString(path, kTokenizerBytesMax));
  Vocabulary v;
  v.kind = VocabularyKind::kSentencePiece;
  v.add_bos = true;
  v.add_space_prefix = true;
  v.remove_extra_whitespaces = true;
  const Status parsed = ParseSentencePiece(bytes, v);
  if (!parsed.ok()) return parsed.Annotate(path);
  return v;
}

Result<Vocabulary> ReadHuggingFaceTokenizer(const std::string& folder) {
  Vocabulary v;
  Json processor;  // of tokenizer.json, if that is the vocabulary
  const std::string sentencepiece = FolderFile(folder, "tokenizer.model"),
                    json_path = FolderFile(folder, "tokenizer.json");
  if (base::PathExists(sentencepiece)) {
    ASSIGN_OR_RETURN(v, ReadSentencePieceModel(sentencepiece));
    if (base::PathExists(json_path)) RETURN_IF_ERROR(AddTokensOf(json_path, v));
  } else if (base::PathExists(json_path)) {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(json_path, kTokenizerBytesMax));
    const auto tokenizer = base::ParseJsonOf(text, kTokenizerValuesMax);
    if (!tokenizer.ok()) return tokenizer.status().Annotate(json_path);
    const Status parsed = ParseTokenizerJson(*tokenizer, v);
    if (!parsed.ok()) return parsed.Annotate(json_path);
    if (const Json* found = tokenizer->Find("post_processor")) processor = *found;
  } else {
    return base::NotFound(folder,
                          ": no tokenizer: neither tokenizer.model nor tokenizer.json is there");
  }
  const std::string config_path = FolderFile(folder, "tokenizer_config.json"),
                    jinja_path = FolderFile(folder, "chat_template.jinja");
  if (base::PathExists(config_path)) {
    ASSIGN_OR_RETURN(const std::string text,
                     base::ReadFileToString(config_path, kTokenizerBytesMax));
    const auto config = base::ParseJsonOf(text, kTokenizerValuesMax);
    if (!config.ok()) return config.status().Annotate(config_path);
    ApplyTokenizerConfig(*config, v);
  }
  ReadTemplate(processor, v);
  if (base::PathExists(jinja_path)) {
    ASSIGN_OR_RETURN(v.chat_template, base::ReadFileToString(jinja_path, kTemplateBytesMax));
  }
  // Further templates. Source: transformers, additional_chat_templates.
  const std::string tools_path = FolderFile(folder, "additional_chat_templates/tool_use.jinja");
  if (base::PathExists(tools_path)) {
    ASSIGN_OR_RETURN(v.tool_template, base::ReadFileToString(tools_path, kTemplateBytesMax));
  }
  if (v.chat_template.empty()) v.chat_template = v.tool_template;
  return v;
}

}  // namespace thermocline::model
