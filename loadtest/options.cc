#include "loadtest/options.h"

#include <CLI/CLI.hpp>

#include "loadtest/option_texts.h"

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

}  // namespace

const std::vector<TextOption> kTextOptions = {
    {"--api", &OptionTexts::api, "http or grpc"},
    {"--concurrency,-c", &OptionTexts::concurrency, "closed loop: users at once [1]"},
    {"--rate,-r", &OptionTexts::rate, "open loop: requests per second"},
    {"--arrival", &OptionTexts::arrival, "with --rate: poisson, gamma or constant gaps [poisson]"},
    {"--burstiness", &OptionTexts::burstiness,
     "of gamma: shape; 1 is Poisson, below 1 come bursts [1]"},
    {"--trace", &OptionTexts::trace, "open loop: JSONL of times and lengths"},
    {"--trace-speed", &OptionTexts::trace_speed, "plays a trace so many times as fast [1]"},
    {"--duration,-d", &OptionTexts::duration,
     "no request begins later: 90, 90s, 10m, 24h [10s; a whole trace]"},
    {"--requests,-n", &OptionTexts::requests, "no more requests than these"},
    {"--warmup", &OptionTexts::warmup, "requests before the run that are not measured [0]"},
    {"--max-in-flight", &OptionTexts::max_in_flight,
     "open loop: requests at once; others wait, their clock running [1024]"},
    {"--workload,-w", &OptionTexts::workload,
     "chat, multi-turn, long-beside-short, cancel-storm, slow-readers or malformed [chat]"},
    {"--prompt-tokens", &OptionTexts::prompt_tokens, "of a prompt, N or LOW-HIGH [64]"},
    {"--max-tokens", &OptionTexts::max_tokens, "of an answer, N or LOW-HIGH; 0: unsaid [64]"},
    {"--dataset", &OptionTexts::dataset, "prompts from a JSONL file of texts or messages"},
    {"--seed", &OptionTexts::seed, "of arrivals and prompts [1]"},
    {"--share", &OptionTexts::share,
     "of requests that are long, leave, read slowly or are malformed [0.3]"},
    {"--long-prompt-tokens", &OptionTexts::long_prompt_tokens,
     "with long-beside-short: of a long prompt [1024]"},
    {"--read-pause", &OptionTexts::read_pause, "with slow-readers: between two reads [200ms]"},
    {"--turns", &OptionTexts::turns, "with multi-turn: of a conversation [4]"},
    {"--shared-prefix-tokens", &OptionTexts::shared_prefix_tokens,
     "with multi-turn: of the system prompt that all share [64]"},
    {"--think-time", &OptionTexts::think_time, "with multi-turn: mean pause between turns [0]"},
    {"--route", &OptionTexts::route, "chat or completions [chat]"},
    {"--model", &OptionTexts::model, "the model's name [the first of GET /v1/models]"},
    {"--temperature", &OptionTexts::temperature, "of sampling [the server's]"},
    {"--extra-body", &OptionTexts::extra_body, "a JSON object whose members each request has"},
    {"--api-key", &OptionTexts::api_key, "sent as a bearer token; others see it in ps"},
    {"--api-key-file", &OptionTexts::api_key_file, "the first line of a file is the key"},
    {"--api-key-env", &OptionTexts::api_key_env, "the environment variable that has the key"},
    {"--ca-file", &OptionTexts::ca_file, "certificate authorities (PEM) in place of the system's"},
    {"--metrics-url", &OptionTexts::metrics_url,
     "the server's Prometheus page [/metrics beside the API]"},
    {"--timeout", &OptionTexts::timeout, "of one request, from sending [120s]"},
    {"--sweep", &OptionTexts::sweep,
     "concurrency or rate: a run for each step, to the knee; --duration is of a step"},
    {"--sweep-steps", &OptionTexts::sweep_steps, "as 1,2,4,8 [doubled until the knee is behind]"},
    {"--slo", &OptionTexts::slo,
     "exit status 1 if missed: ttft:p95<1s,itl:p99<100ms,tpot:mean<50ms,errors<1%,goodput>2"},
    {"--goodput", &OptionTexts::goodput,
     "a good request: ttft<1s,tpot<50ms,itl<200ms (its largest gap),e2e<10s [the SLO's limits]"},
    {"--pid", &OptionTexts::pid, "a server on this machine whose memory is watched"},
    {"--rss-slope-max", &OptionTexts::rss_slope_max,
     "with --pid: exit status 1 if RSS + swap grow by more in an hour, as 1MiB"},
    {"--report", &OptionTexts::report, "an HTML page with plots"},
    {"--raw", &OptionTexts::raw, "JSONL of every request with the times of its chunks"},
};

const std::vector<FlagOption> kFlagOptions = {
    {"--ignore-eos", &OptionTexts::ignore_eos, "answers go on to --max-tokens"},
    {"--no-keep-alive", &OptionTexts::no_keep_alive, "a connection for each request"},
    {"--insecure", &OptionTexts::insecure, "certificates are not checked"},
    {"--soak", &OptionTexts::soak, "a long run: watches --pid, judges the growth of its memory"},
    {"--json", &OptionTexts::json, "one JSON object on stdout"},
};

namespace {

Result<LoadOptions> Check(const CLI::App& app, const OptionTexts& texts) {
  const Given given = [&](const std::string& name) { return app.get_option(name)->count() > 0; };
  for (const TextOption& option : kTextOptions) {
    const std::string names = option.name, name = names.substr(0, names.find(','));
    if ((texts.*option.text).empty() && given(name))
      return base::InvalidArgument(name, " '': it is empty");
  }
  return CheckOptions(texts, given);
}

}  // namespace

ParsedLine ParseCommandLine(int argc, char** argv) {
  ParsedLine line;
  OptionTexts texts;
  CLI::App app(kHelp, "thermocline-load");
  app.footer(kFooter);
  app.set_version_flag("--version", "thermocline-load " THERMOCLINE_VERSION);
  app.add_option("URL", texts.url, "the server, http://127.0.0.1:8080; of gRPC: 127.0.0.1:50051")
      ->required();
  for (const TextOption& option : kTextOptions)
    app.add_option(option.name, texts.*option.text, option.help);
  for (const FlagOption& option : kFlagOptions)
    app.add_flag(option.name, texts.*option.flag, option.help);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    line.exit = app.exit(error) == 0 ? kExitDone : kExitUsage;
    return line;
  }
  auto checked = Check(app, texts);
  if (!checked.ok()) {
    std::fprintf(stderr, "thermocline-load: %s\n", checked.status().message().c_str());
    line.exit = checked.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
    return line;
  }
  line.options = *std::move(checked);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--api-key") ++i;
    const bool secret = argument.starts_with("--api-key") && !argument.starts_with("--api-key-");
    line.options.arguments.emplace_back(secret ? "--api-key=..." : argument);
  }
  return line;
}

}  // namespace thermocline::loadtest
