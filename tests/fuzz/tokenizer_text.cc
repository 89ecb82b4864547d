// Fuzzes text to tokens and back: Tidepool's SentencePiece vocabulary, and byte pairs under each
// pre-tokenizer, which the first byte selects.
#include <cstdlib>

#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

namespace {

constexpr const char* kPreTokenizers[] = {"llama-bpe", "qwen2",  "gpt-2",   "deepseek-llm",
                                          "gpt-4o",    "tekken", "smollm",  "starcoder",
                                          "command-r", "falcon", "kimi-k2", "default"};
constexpr std::size_t kCount = std::size(kPreTokenizers);

// GPT-2's byte alphabet alone, under a pre-tokenizer.
model::Vocabulary Bytes(const char* pre_tokenizer) {
  model::Vocabulary out;
  out.kind = model::VocabularyKind::kByteLevelBpe;
  out.pre_tokenizer = pre_tokenizer;
  for (int byte = 0, next = 256; byte < 256; ++byte) {
    const bool printed = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int code = printed ? byte : next++;
    const auto high = static_cast<char>(0xC0 | (code >> 6)),
               low = static_cast<char>(0x80 | (code & 0x3F));
    out.tokens.push_back(code < 128 ? std::string(1, static_cast<char>(code))
                                    : std::string{high, low});
    out.types.push_back(model::TokenType::kNormal);
  }
  out.merges = {"t h", "i n"};
  out.tokens.insert(out.tokens.end(), {"th", "in"});
  out.types.insert(out.types.end(), 2, model::TokenType::kNormal);
  return out;
}

const text::Tokenizer* TokenizerOf(std::size_t which) {
  static std::vector<std::unique_ptr<text::Tokenizer>> all = [] {
    static std::vector<model::Vocabulary> vocabularies;
    for (const char* name : kPreTokenizers) vocabularies.push_back(Bytes(name));
    vocabularies.push_back(
        (*model::OpenModelFile(SOURCE_DIR "/config/models/tidepool.gguf"))->vocabulary);
    std::vector<std::unique_ptr<text::Tokenizer>> made;
    for (const model::Vocabulary& each : vocabularies) {
      auto tokenizer = text::Tokenizer::Create(each);
      made.push_back(tokenizer.ok() ? *std::move(tokenizer) : nullptr);
    }
    return made;
  }();
  return all[which].get();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const text::Tokenizer* tokenizer = TokenizerOf(data[0] % (kCount + 1));
  if (tokenizer == nullptr) return 0;
  const std::string_view text = fuzz::TextOf(data + 1, size - 1);
  (void)tokenizer->Decode(tokenizer->Encode(text, {}));
  (void)tokenizer->Encode(text::TemplateText::Data(std::string(text)));
  return 0;
}
