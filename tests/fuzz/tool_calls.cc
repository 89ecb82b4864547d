// Fuzzes answers that may be calls of tools: chunks of any size give the same result.
#include <cstdlib>

#include "tests/fuzz/input.h"
#include "tests/server/chat/answer_chunks.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<chat::OutputFormat> formats = chat::SmallFormats();
  if (size == 0) return 0;
  const bool cut = (data[0] & 1) != 0;
  const auto config = chat::LenientConfig(formats[data[0] / 2 % formats.size()]);
  const std::string_view text = fuzz::TextOf(data + 1, size - 1);
  const std::string whole = chat::ParseAnswer(config, text, text.size() + 1, cut).Described();
  for (const std::size_t bytes : {1, 2, 7})
    if (chat::ParseAnswer(config, text, bytes, cut).Described() != whole) std::abort();
  return 0;
}
