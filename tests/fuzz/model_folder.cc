// Fuzzes a Hugging Face folder: config.json, model.safetensors, tokenizer.json,
// tokenizer_config.json.
#include "engine/model/open/open_model.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/load_and_run.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::PartsOf(fuzz::TextOf(data, size), 4);
  const fuzz::InputFolder folder;
  folder.Add("config.json", parts[0]);
  folder.Add("tokenizer.json", parts[1]);
  folder.Add("tokenizer_config.json", parts[2]);
  folder.Add("model.safetensors", parts[3]);
  const auto model = model::OpenModelFile(folder.path());
  if (!model.ok()) return 0;
  (void)text::Tokenizer::Create((*model)->vocabulary);
  fuzz::LoadAndRun(**model, folder.path());
  return 0;
}
