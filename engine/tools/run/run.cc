// `thermocline run`: generate from a prompt, or chat on the terminal.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <set>

#include "engine/base/file.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/text/dry_breakers.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/common/console.h"
#include "engine/tools/common/hot_report.h"
#include "engine/tools/common/model_options.h"
#include "engine/tools/common/spec_report.h"
#include "engine/tools/common/work_report.h"

namespace thermocline::tools {
namespace {

struct Options {
  ModelOptions model = CommandLineDefaults();
  std::string prompt, system;
  std::vector<std::string> dry_breakers = text::kDryBreakersDefault;
  std::string grammar, json_schema;  // files
  bool chat = false, json = false, ignore_eos = false, has_prompt = false;
  int max_tokens = 0;
  SamplingParams sampling;
};

volatile std::sig_atomic_t interrupted = 0;

// One generation, streamed to stdout unless `quiet`.
struct Generation {
  std::string text;
  std::vector<int> tokens;
  FinishReason reason = FinishReason::kNone;
  Usage usage;
};

Result<Generation> Generate(Engine& engine, Request request, bool quiet) {
  ASSIGN_OR_RETURN(const auto channel, engine.Submit(std::move(request)));
  Generation out;
  TokenChannel::Update update;
  TokenChannel::ReserveBuffers(update);
  while (true) {
    channel->WaitAndTake(update);
    if (interrupted != 0) channel->Cancel();
    out.text += update.text;
    out.tokens.insert(out.tokens.end(), update.tokens.begin(), update.tokens.end());
    if (!quiet) {
      std::fwrite(update.text.data(), 1, update.text.size(), stdout);
      std::fflush(stdout);
    }
    if (!update.finished) continue;
    out.reason = update.reason;
    out.usage = update.usage;
    if (update.reason == FinishReason::kError) return update.error;
    return out;
  }
}

double Rate(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

// Tokens after the first: the first comes from prefill.
double DecodeRate(const Usage& usage) {
  return Rate(std::max(0, usage.completion_tokens - 1), usage.decode_s);
}

// Of the weights that decoding has read.
double BytesPerToken(const EngineStats& stats) {
  return static_cast<double>(stats.bytes_per_token) - SavedBytesPerToken(stats.ffn);
}

// "exact", or all that the layers have: "dense, exact".
std::string ModesOf(const EngineStats& stats) {
  std::set<FfnMode> modes;
  for (const FfnLayerStats& layer : stats.ffn) modes.insert(layer.mode);
  std::string text;
  for (const FfnMode mode : modes) text += StrCat(text.empty() ? "" : ", ", FfnModeName(mode));
  return text;
}

void PrintSpeed(const Generation& g, const EngineStats& stats) {
  const SpecUsage& spec = g.usage.spec;
  const std::string drafted = spec.draft_tokens == 0
                                  ? ""
                                  : StrCat(", ", spec.accepted_tokens, " of ", spec.draft_tokens,
                                           " drafted tokens accepted");
  std::fprintf(stderr,
               "%d prompt tokens at %.1f tokens/s, %d tokens at %.1f tokens/s, %.1f MB/token, %d "
               "threads, %s, %s%s\n",
               g.usage.prompt_tokens, Rate(g.usage.prompt_tokens, g.usage.prefill_s),
               g.usage.completion_tokens, DecodeRate(g.usage), BytesPerToken(stats) / 1e6,
               stats.threads, stats.cpu_isa.c_str(), ModesOf(stats).c_str(), drafted.c_str());
}

// Null if memory holds all.
Json FlashJson(const EngineStats::Flash& flash) {
  if (!flash.used) return Json();
  const FlashCounters& c = flash.counters;
  return Json::Object{{"kind", flash.layers ? "layers" : "neurons"},
                      {"bundle", flash.bundle},
                      {"method", flash.method},
                      {"reads", c.reads},
                      {"bytes", c.bytes},
                      {"needed", c.needed},
                      {"hits", c.hits},
                      {"retries", c.retries},
                      {"wait_s", c.wait_s},
                      {"manage_s", c.manage_s},
                      {"arrive_s", c.arrive_s}};
}

Json ToJson(const Generation& g, const EngineStats& stats) {
  return Json::Object{
      {"text", g.text},
      {"tokens", Json::Array(g.tokens.begin(), g.tokens.end())},
      {"prompt_tokens", g.usage.prompt_tokens},
      {"completion_tokens", g.usage.completion_tokens},
      {"finish_reason", FinishReasonName(g.reason)},
      {"ffn_mode", ModesOf(stats)},
      {"memory_budget", stats.memory_budget},
      {"memory_planned", stats.memory_planned},
      {"weights_read", stats.weights_read},
      {"work", WorkJson(stats.ffn)},
      {"flash", FlashJson(stats.flash)},
      {"hot", HotJson(stats.hot)},
      {"spec", SpecJson(stats.spec)},
      {"timings",
       Json::Object{{"load_s", stats.load_s},
                    {"prefill_s", g.usage.prefill_s},
                    {"decode_s", g.usage.decode_s},
                    {"prefill_tokens_per_s", Rate(g.usage.prompt_tokens, g.usage.prefill_s)},
                    {"decode_tokens_per_s", DecodeRate(g.usage)},
                    {"bytes_per_token", static_cast<std::int64_t>(BytesPerToken(stats))},
                    {"draft_n", g.usage.spec.draft_tokens},
                    {"draft_n_accepted", g.usage.spec.accepted_tokens},
                    {"drafts", g.usage.spec.drafts},
                    {"branch_hits", g.usage.spec.branch_hits},
                    {"branch_misses", g.usage.spec.branch_misses},
                    {"draft_wait_s", g.usage.spec.wait_s}}}};
}

Request MakeRequest(const Options& options, std::vector<int> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = options.sampling,
          .max_tokens = options.max_tokens,
          .stop = {},
          .ffn_mode = "",
          .ignore_eos = options.ignore_eos,
          .dry_breakers = options.dry_breakers};
}

Status Complete(Engine& engine, const Options& options) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const bool bos = tokenizer.vocabulary().add_bos || options.prompt.empty();
  std::vector<int> prompt;
  if (options.chat) {
    ASSIGN_OR_RETURN(const auto formatter, ChatFormatter::Create(tokenizer));
    Json::Array messages;
    if (!options.system.empty())
      messages.push_back(Json::Object{{"role", "system"}, {"content", options.system}});
    messages.push_back(Json::Object{{"role", "user"}, {"content", options.prompt}});
    ASSIGN_OR_RETURN(prompt,
                     formatter->Encode(Json(Json::Object{{"messages", std::move(messages)}})));
  } else {
    prompt = tokenizer.Encode(options.prompt, {.add_bos = bos, .control_tokens = true});
  }
  ASSIGN_OR_RETURN(const Generation g,
                   Generate(engine, MakeRequest(options, std::move(prompt)), options.json));
  if (options.json) {
    PrintJson(ToJson(g, engine.Stats()));
  } else {
    std::printf("\n");
    std::fflush(stdout);
    PrintSpeed(g, engine.Stats());
  }
  return OkStatus();
}

Status Chat(Engine& engine, const Options& options) {
  ASSIGN_OR_RETURN(const auto formatter, ChatFormatter::Create(engine.tokenizer()));
  std::fprintf(stderr, "Chatting with %s. An empty line or Ctrl-D ends.\n",
               engine.Stats().model_path.c_str());
  Json::Array messages;
  if (!options.system.empty())
    messages.push_back(Json::Object{{"role", "system"}, {"content", options.system}});
  while (true) {
    std::printf("> ");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line) || line.empty()) break;
    messages.push_back(Json::Object{{"role", "user"}, {"content", line}});
    ASSIGN_OR_RETURN(std::vector<int> prompt,
                     formatter->Encode(Json(Json::Object{{"messages", messages}})));
    interrupted = 0;
    const auto g = Generate(engine, MakeRequest(options, std::move(prompt)), false);
    if (g.status().code() == StatusCode::kOutOfRange) {
      std::fprintf(stderr, "%s\nStarting a new conversation.\n", g.status().message().c_str());
      messages.resize(options.system.empty() ? 0 : 1);
      continue;
    }
    if (!g.ok()) return g.status();
    std::printf("\n");
    PrintSpeed(*g, engine.Stats());
    messages.push_back(Json::Object{{"role", "assistant"}, {"content", g->text}});
  }
  return OkStatus();
}

// The grammar that a file holds; null: none is asked for.
Result<std::shared_ptr<const grammar::CompiledGrammar>> CompileFile(Engine& engine,
                                                                    const Options& options) {
  const bool schema = !options.json_schema.empty();
  const std::string& path = schema ? options.json_schema : options.grammar;
  if (path.empty()) return std::shared_ptr<const grammar::CompiledGrammar>();
  ASSIGN_OR_RETURN(std::string text, base::ReadFileToString(path));
  auto compiled =
      engine.Compile({.kind = schema ? GrammarSpec::Kind::kJsonSchema : GrammarSpec::Kind::kGbnf,
                      .text = std::move(text),
                      .field = schema ? "--json-schema" : "--grammar"});
  if (!compiled.ok()) return compiled.status().Annotate(path);
  return compiled;
}

Status Run(Options options) {
  RETURN_IF_ERROR(ValidateSampling(options.sampling));
  if (!options.grammar.empty() && !options.json_schema.empty())
    return base::InvalidArgument("--grammar and --json-schema both say what the answer must be");
  ProgressBar bar("loading");
  ASSIGN_OR_RETURN(const auto engine,
                   Engine::Load({.model = options.model, .on_progress = bar.callback()}));
  bar.Clear();
  ASSIGN_OR_RETURN(options.sampling.constraint, CompileFile(*engine, options));
  std::signal(SIGINT, [](int) { interrupted = 1; });
  return options.has_prompt ? Complete(*engine, options) : Chat(*engine, options);
}

void AddSamplingOptions(const OptionSet& set, Options& o) {
  SamplingParams& s = o.sampling;
  set.Add("--temperature", DoubleValue{&s.temperature}, "0 takes the most probable token");
  set.Add("--top-k", IntValue{&s.top_k}, "Sample from the k most probable tokens; 0 = all");
  set.Add("--top-p", DoubleValue{&s.top_p}, "Sample from the smallest set with this probability");
  set.Add("--min-p", DoubleValue{&s.min_p},
          "Leave out tokens below this share of the highest probability");
  set.Add("--typical-p", DoubleValue{&s.typical_p},
          "Sample from the set nearest to the expected surprise, with this probability");
  set.Add("--repetition-penalty", DoubleValue{&s.repetition_penalty},
          "Above 1 makes seen tokens less likely");
  set.Add("--presence-penalty", DoubleValue{&s.presence_penalty},
          "Subtracted from the logits of generated tokens");
  set.Add("--frequency-penalty", DoubleValue{&s.frequency_penalty},
          "The same for each time they came");
  set.Add("--dry-multiplier", DoubleValue{&s.dry_multiplier},
          "Above 0: tokens that go on with a repetition become less likely (DRY)");
  set.Add("--dry-base", DoubleValue{&s.dry_base}, "How fast that grows with each repeated token");
  set.Add("--dry-allowed-length", IntValue{&s.dry_allowed_length},
          "Repeated tokens from which it begins");
  set.Add("--dry-penalty-last-n", IntValue{&s.dry_penalty_last_n},
          "Tokens looked back at; -1 = all, 0 = none");
  set.Add("--dry-breaker", o.dry_breakers,
          "Strings that a repetition does not go across; not given: line end : \" *");
  set.Add("--min-tokens", IntValue{&s.min_tokens},
          "Tokens before which the model's end token does not come");
  set.Add("--seed", s.seed, "The same seed and prompt give the same text");
}

}  // namespace

Command AddRun(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  o->sampling.temperature = 0;
  AddModelOptions(set, o->model);
  AddDecodeOptions(set, o->model);
  AddOptions(set, OptionGroup::kHot, o->model);
  AddSpecOptions(set, o->model);
  AddOptions(set, OptionGroup::kTrace, o->model);
  const OptionRef prompt = set.Add(
      "-p,--prompt", o->prompt,
      "Raw prompt; control tokens in it count. \"\" starts from the beginning of a sequence");
  set.Add("--chat", o->chat, "The prompt is a user's message for the chat template");
  set.Add("--system", o->system, "System message of a chat");
  set.Add("-n,--max-tokens", IntValue{&o->max_tokens, 0},
          "Tokens to generate; 0 = to the end of the context");
  AddSamplingOptions(set, *o);
  AddOptions(set, OptionGroup::kContext, o->model);
  set.Add("--grammar", o->grammar, "File with a GBNF grammar that the answer must follow");
  set.Add("--json-schema", o->json_schema, "File with a JSON schema that the answer must satisfy");
  set.Add("--ignore-eos", o->ignore_eos, "Go on after the model's end token");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o, prompt]() -> Status {
    o->has_prompt = prompt.given();
    if (o->json && !o->has_prompt) return base::InvalidArgument("--json needs a prompt (-p)");
    return Run(*o);
  };
}

}  // namespace thermocline::tools
