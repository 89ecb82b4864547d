// The options of every subcommand that runs a model.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "engine/load/loaded_model.h"

namespace thermocline::tools {

struct ModelOptions {
  std::string model, isa, activation, kv_type = "f16";
  int threads = 0;
  bool verify = false, quantize_head = false;
  FfnOptions ffn;
  load::MemoryOptions memory;
  HotOptions hot;
  SpecOptions spec;
  std::string record_trace;
};

// A number in [low, high]; CLI::Range lets NaN pass.
CLI::Validator NumberIn(double low, double high);

// A number of bytes, as base::ParseBytes reads it.
CLI::Validator SizeText();

// Adds MODEL and the options to `app`.
void AddModelOptions(CLI::App& app, ModelOptions& options);
// Adds those of the feed-forward networks, for the subcommands that decode.
void AddFfnOptions(CLI::App& app, FfnOptions& options);

// Adds those of memory and flash, for the subcommands that decode.
void AddMemoryOptions(CLI::App& app, load::MemoryOptions& memory);
// Adds those of the hot tier, for the subcommands that decode.
void AddHotOptions(CLI::App& app, HotOptions& hot);
// Adds those of speculative decoding: --draft and what drafts are like; and with --spec, the mode,
// for the subcommands that decode in one. A draft or a source without a mode means auto.
void AddDraftOptions(CLI::App& app, SpecOptions& spec);
void AddSpecOptions(CLI::App& app, SpecOptions& spec);
// Adds --record-trace.
void AddTraceOption(CLI::App& app, std::string& path);

// The same with every layer in one mode: for the subcommands that look at what dense layers do.
ModelOptions WithMode(ModelOptions options, FfnMode mode);

// InvalidArgument: an option out of range.
Result<load::LoadOptions> ToLoadOptions(const ModelOptions& options);

// For the subcommands that use the engine's public face; without on_progress.
EngineConfig ToEngineConfig(const ModelOptions& options, int context_length);

// With a progress bar on the terminal.
Result<std::unique_ptr<load::LoadedModel>> LoadWithProgress(const ModelOptions& options);

}  // namespace thermocline::tools
