// Names of models that are fetched: a repository of the Hugging Face hub, a name of Ollama's
// registry, or the address of a GGUF file. Every part is checked, so it can be part of a path and
// of an address.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace thermocline::hub {

struct ModelName {
  enum class Kind { kHub, kRegistry, kAddress };
  Kind kind = Kind::kHub;
  // kHub. `quant` is also a file's path in the repository; "" means the default order.
  std::string repo = {}, revision = "main", quant = {};
  // kRegistry: the registry's host, and three parts of its path.
  std::string host = "registry.ollama.ai", owner = "library", model = {}, tag = "latest";
  // kAddress.
  std::string address = {};

  // The name that clients see: "OWNER/REPO:QUANT", "MODEL:TAG", or the file's name.
  std::string Shown() const;
};

// Reads "hf:OWNER/REPO[:QUANT]", "OWNER/REPO[:QUANT]", an address of huggingface.co or of
// HF_ENDPOINT, "ollama:[OWNER/]MODEL[:TAG]", "MODEL[:TAG]", or the address of a .gguf file.
// InvalidArgument says which forms there are.
Result<ModelName> ParseModelName(const std::string& text);

// True if `path` is relative and each of its parts is a file's name: not empty, no "." or "..", no
// backslash and no control character.
bool IsPlainPath(std::string_view path);
// True for `digits` lower-case hexadecimal digits.
bool IsHex(std::string_view text, std::size_t digits);

}  // namespace thermocline::hub
