// `thermocline`: the command line.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "engine/base/log.h"
#include "engine/tools/common/console.h"

using namespace thermocline::tools;  // NOLINT: this file is only the table below

int main(int argc, char** argv) {
  CLI::App app{
      "Thermocline: run, inspect and measure language models on one machine.\n"
      "MODEL is a GGUF file, a llama2.c .bin, a Hugging Face folder, or a built-in model "
      "(tidepool, tidepool-draft).",
      "thermocline"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "thermocline 0.1.0");
  struct Entry {
    const char* name;
    const char* help;
    Command (*add)(CLI::App&);
  };
  static constexpr Entry kEntries[] = {
      {"run", "Generate text, or chat when no prompt is given", AddRun},
      {"inspect", "Show what a model file holds", AddInspect},
      {"convert", "Write a model as GGUF, quantised if asked", AddConvert},
      {"tokenize", "Turn text on standard input into token ids, or back", AddTokenize},
      {"template", "Render a chat template for the messages on standard input", AddTemplate},
      {"bench", "Measure prefill and decode speed beside the machine's read bandwidth", AddBench},
      {"eval", "Perplexity and logits of a text, and how far another model or setting is", AddEval},
      {"synth", "Write a random model of any shape, with known activations", AddSynth},
      {"calibrate", "Find the thresholds of the sign predictor, or of mode threshold",
       AddCalibrate},
      {"profile", "Count how often a text activates each neuron", AddProfile},
      {"pack", "Write the bundle file that a model's flash tier reads", AddPack},
      {"plan", "Place a model's neurons; replay a trace against caches; what a draft would gain",
       AddPlan},
      {"train-predictor", "Learn to predict which neurons a token activates", AddTrainPredictor},
  };
  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const Entry& entry : kEntries) {
    CLI::App* sub = app.add_subcommand(entry.name, entry.help);
    commands.emplace_back(sub, entry.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  thermocline::base::ConfigureLog(thermocline::base::LogLevel::kWarning, false);
  for (const auto& [sub, command] : commands) {
    if (!sub->parsed()) continue;
    thermocline::Status status = command();
    if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      status = thermocline::base::Unavailable("standard output cannot be written");
    }
    if (status.ok()) return kExitDone;
    std::fprintf(stderr, "thermocline %s: %s\n", sub->get_name().c_str(), status.message().c_str());
    return kExitFailed;
  }
  return kExitUsage;
}
