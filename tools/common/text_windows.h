// Splits a text into windows of tokens, for the subcommands that learn from one.
#pragma once

#include <string>
#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

struct TextOptions {
  std::string text;    // path
  int tokens = 20000;  // of the text; 0 = all
  int window = 256;    // tokens per window, including beginning-of-sequence
};

// Adds --text, --tokens and --window.
void AddTextOptions(const OptionSet& set, TextOptions& options, bool required = true);

using Window = std::vector<int>;

// Every window begins with the beginning-of-sequence token if the model wants it.
// FailedPrecondition: no tokenizer. InvalidArgument: an empty text. OutOfRange: a window beyond the
// model's context.
Result<std::vector<Window>> ReadTextWindows(const TextOptions& options,
                                            const load::LoadedModel& model);

int CountTokens(const std::vector<Window>& windows);

// Holds out every sixth window (the last one of fewer), so that both sets cover all parts of the
// text. InvalidArgument: fewer than two windows.
struct SplitWindows {
  std::vector<Window> train, held_out;
};
Result<SplitWindows> SplitHeldOut(const TextOptions& options, std::vector<Window> windows);

}  // namespace thermocline::tools
