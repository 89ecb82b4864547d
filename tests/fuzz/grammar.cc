// Fuzzes requested formats: a JSON schema, a GBNF grammar, or a regular expression, by the first
// byte. If it compiles, its first masks are computed.
#include <functional>

#include "engine/grammar/automaton.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/json_strings.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(fuzz::TextOf(data + 1, size - 1));
  grammar::Budget budget(20'000, 0.5, 64 << 20);
  const auto automaton = [&](const Result<grammar::Grammar>& made) {
    if (made.ok()) (void)grammar::Automaton::Create(*made, budget);
  };
  if (data[0] % 3 == 0) {
    const auto schema = base::ParseJson(text);
    if (schema.ok()) automaton(grammar::GrammarOfSchema(*schema, budget));
  } else if (data[0] % 3 == 1) {
    automaton(grammar::ParseGbnf(
        text, {.find_token = [](const std::string& token) { return token == "<end>" ? 2 : -1; }},
        budget));
  } else {
    (void)grammar::ContentOfPattern(text, budget);
  }
  return 0;
}
