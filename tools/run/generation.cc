#include "tools/run/generation.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <set>

#include "tools/common/work_report.h"

namespace thermocline::tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART, so that a waiting read ends, too
}

bool Interrupted() { return interrupted != 0; }

Result<Generation> Generate(Engine& engine, Request request,
                            const std::function<void(std::string_view)>& on_text) {
  interrupted = 0;
  request.progress = true;  // reports prefill's progress, so that a long prompt can be interrupted
  ASSIGN_OR_RETURN(const auto channel, engine.Submit(std::move(request)));
  Generation out;
  TokenChannel::Update update;
  TokenChannel::ReserveBuffers(update);
  while (true) {
    channel->WaitForUpdate(update);
    if (Interrupted()) channel->Cancel();
    out.text += update.text;
    out.tokens.insert(out.tokens.end(), update.tokens.begin(), update.tokens.end());
    on_text(update.text);
    if (!update.finished) continue;
    out.reason = update.reason;
    out.usage = update.usage;
    if (update.reason == FinishReason::kError) return update.error;
    return out;
  }
}

double Rate(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

double DecodeRate(const Usage& usage) {
  return Rate(std::max(0, usage.completion_tokens - 1), usage.decode_s);
}

double BytesPerToken(const EngineStats& stats) {
  return static_cast<double>(stats.bytes_per_token) - SavedBytesPerToken(stats.ffn);
}

std::string ModesOf(const EngineStats& stats) {
  std::set<FfnMode> modes;
  for (const FfnLayerStats& layer : stats.ffn) modes.insert(layer.mode);
  std::string text;
  for (const FfnMode mode : modes) text += StrCat(text.empty() ? "" : ", ", FfnModeName(mode));
  return text;
}

std::string SpeedLine(const Usage& usage, const EngineStats& stats) {
  const SpecUsage& spec = usage.spec;
  const std::string drafted = spec.draft_tokens == 0
                                  ? ""
                                  : StrCat(", ", spec.accepted_tokens, " of ", spec.draft_tokens,
                                           " drafted tokens accepted");
  const std::string cached =
      usage.cached_tokens == 0 ? "" : StrCat(" (", usage.cached_tokens, " cached)");
  char numbers[192];
  std::snprintf(numbers, sizeof numbers,
                "%d prompt tokens%s at %.1f tokens/s, %d tokens at %.1f tokens/s, %.1f MB/token",
                usage.prompt_tokens, cached.c_str(), Rate(usage.prefill_tokens, usage.prefill_s),
                usage.completion_tokens, DecodeRate(usage), BytesPerToken(stats) / 1e6);
  return StrCat(numbers, ", ", stats.threads, " threads, ", stats.cpu_isa, ", ", ModesOf(stats),
                drafted);
}

}  // namespace thermocline::tools
