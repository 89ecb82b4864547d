// Fuzzes a model in any single-file format: GGUF, PowerInfer's, llama2.c.
#include "engine/model/open/open_model.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/load_and_run.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::InputFile file(fuzz::TextOf(data, size));
  const auto model = model::OpenModelFile(file.path());
  if (!model.ok()) return 0;
  if (const auto tokenizer = text::Tokenizer::Create((*model)->vocabulary); tokenizer.ok())
    (*tokenizer)->Decode((*tokenizer)->Encode("Once upon a time", {}));
  fuzz::LoadAndRun(**model, file.path());
  return 0;
}
