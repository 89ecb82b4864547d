#include "loadtest/options/command_line.h"

#include <CLI/CLI.hpp>

#include "loadtest/options/option_table.h"
#include "loadtest/options/read_options.h"

namespace thermocline::loadtest {
namespace {

constexpr const char* kHelp =
    "Thermocline's load tester: asks a server with OpenAI's API (or Thermocline's gRPC) as many "
    "clients do, and measures what they see.\n"
    "Closed loop: --concurrency users, each asks again when it is answered. Open loop: --rate or "
    "--trace; latencies count from the time a request was due, however late it was sent.";

constexpr const char* kFooter =
    "Exit status: 0 done, 1 failed (also: an SLO was missed, or no request succeeded), 2 bad "
    "usage.\n"
    "Example: thermocline-load http://127.0.0.1:8080 --concurrency 4 --duration 30s --slo "
    "'ttft:p95<1s,errors<1%' --report load.html";

// The parsed text is dropped, because Given reads it.
CLI::Option* Add(const LoadOption& option, CLI::App& app) {
  const std::string help = option.Described();
  if (option.is_flag()) return app.add_flag(option.names, help);
  const auto ignore = [](const std::string&) {};
  return app.add_option_function<std::string>(option.names, ignore, help)
      ->type_name(option.value.type);
}

void AddOptions(const std::vector<LoadOption>& table, CLI::App& app) {
  for (const LoadOption& option : table) {
    CLI::Option* added = Add(option, app);
    option.is_argument() ? added->required() : added->group(option.group);
  }
}

GivenOptions Given(const std::vector<LoadOption>& table, const CLI::App& app) {
  GivenOptions given;
  for (const LoadOption& option : table) {
    const CLI::Option* found = app.get_option(option.name());
    if (found->count() > 0) given[option.name()] = found->as<std::string>();
  }
  return given;
}

// The arguments without secrets.
std::vector<std::string> ArgumentsWithoutSecrets(const std::vector<LoadOption>& table, int argc,
                                                 char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    arguments.emplace_back(argument);
    for (const LoadOption& option : table) {
      const std::string name = option.name();
      if (!option.secret || (argument != name && !argument.starts_with(name + "="))) continue;
      arguments.back() = name + "=...";
      if (argument == name) ++i;
    }
  }
  return arguments;
}

}  // namespace

ParsedLine ParseCommandLine(int argc, char** argv) {
  CLI::App app(kHelp, "thermocline-load");
  app.footer(kFooter);
  app.set_version_flag("--version", "thermocline-load " THERMOCLINE_VERSION);
  LoadOptions defaults;
  const std::vector<LoadOption> table = OptionsOf(defaults);
  AddOptions(table, app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {.exit = app.exit(error) == 0 ? kExitDone : kExitUsage};
  }
  auto read = ReadOptions(Given(table, app));
  if (!read.ok()) {
    std::fprintf(stderr, "thermocline-load: %s\n", read.status().message().c_str());
    return {.exit =
                read.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed};
  }
  read->arguments = ArgumentsWithoutSecrets(table, argc, argv);
  return {.options = *std::move(read)};
}

}  // namespace thermocline::loadtest
