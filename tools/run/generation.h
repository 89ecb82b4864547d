// One generation of `thermocline run`: streamed, and stopped by Ctrl-C.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace thermocline::tools {

struct Generation {
  std::string text = {};
  std::vector<int> tokens = {};
  FinishReason reason = FinishReason::kNone;
  Usage usage = {};
};

// From now on Ctrl-C (SIGINT) ends a generation, not the program.
void CatchInterrupts();
// True if Ctrl-C was pressed since the last generation began.
bool Interrupted();

// Waits for the end; `on_text` is called with each piece of the text. Errors as Engine::Submit and
// those of the generation itself. After Ctrl-C the reason is kCancelled, and the text so far is
// returned.
Result<Generation> Generate(Engine& engine, Request request,
                            const std::function<void(std::string_view)>& on_text);

// `tokens` in `seconds`; 0 if no time passed.
double Rate(int tokens, double seconds);
// Tokens per second, without the first token, which comes from prefill.
double DecodeRate(const Usage& usage);
// Bytes of weights that decoding reads per token.
double BytesPerToken(const EngineStats& stats);
// "exact", or all modes of the layers: "dense, exact".
std::string ModesOf(const EngineStats& stats);
// One line: tokens, speeds, threads, modes, drafts.
std::string SpeedLine(const Usage& usage, const EngineStats& stats);

}  // namespace thermocline::tools
