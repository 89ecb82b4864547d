// Fuzzes vocabularies: a SentencePiece model, llama2.c's tokenizer.bin, or tokenizer.json, by the
// first byte.
#include "engine/model/huggingface/tokenizer.h"
#include "engine/model/model_file.h"
#include "engine/model/open/llama2c.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

namespace {

void Use(const Result<model::Vocabulary>& vocabulary) {
  if (!vocabulary.ok()) return;
  const auto tokenizer = text::Tokenizer::Create(*vocabulary);
  if (tokenizer.ok()) (*tokenizer)->Decode((*tokenizer)->Encode("Hello, w\xc3\xb6rld 123", {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::TextOf(data + 1, size - 1);
  if (data[0] % 3 == 0) {
    Use(model::ReadSentencePieceModel(fuzz::InputFile(bytes).path()));
  } else if (data[0] % 3 == 1) {
    Use(model::ReadLlama2cTokenizer(fuzz::InputFile(bytes).path(), 32));
  } else {
    const auto parts = fuzz::PartsOf(bytes, 2);
    const fuzz::InputFolder folder;
    folder.Add("tokenizer.json", parts[0]);
    folder.Add("tokenizer_config.json", parts[1]);
    Use(model::ReadHuggingFaceTokenizer(folder.path()));
  }
  return 0;
}
