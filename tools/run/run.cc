// `thermocline run`: generates from a prompt, or chats on the terminal.
#include <cstdio>
#include <optional>
#include <random>

#include "engine/base/file.h"
#include "engine/base/random.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"
#include "tools/common/console.h"
#include "tools/common/hot_report.h"
#include "tools/common/model_options.h"
#include "tools/common/spec_report.h"
#include "tools/common/work_report.h"
#include "tools/run/chat_session.h"
#include "tools/run/generation.h"
#include "tools/run/run_batch.h"
#include "tools/run/run_options.h"
#include "tools/run/word_wrap.h"

namespace thermocline::tools {
namespace {

// Null if memory holds the whole model.
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

Result<std::vector<int>> PromptOf(const text::Tokenizer& tokenizer, const RunOptions& options) {
  if (!options.chat) {
    const bool bos = tokenizer.vocabulary().add_bos || options.prompt.empty();
    return tokenizer.Encode(options.prompt, {.add_bos = bos, .control_tokens = true});
  }
  ASSIGN_OR_RETURN(const auto formatter, ChatFormatter::Create(tokenizer));
  Conversation conversation(options.system);
  conversation.Add("user", options.prompt);
  return formatter->Encode(conversation.ToJson());
}

Status Complete(Engine& engine, const RunOptions& options) {
  ASSIGN_OR_RETURN(std::vector<int> prompt, PromptOf(engine.tokenizer(), options));
  WordWrap out(stdout, ColumnsOf(stdout));
  ASSIGN_OR_RETURN(const Generation g, Generate(engine, MakeRequest(options, std::move(prompt)),
                                                [&](std::string_view text) {
                                                  if (!options.json) out.Write(text);
                                                }));
  if (options.json) {
    PrintJson(ToJson(g, engine.Stats()));
    return OkStatus();
  }
  out.Finish();
  Note(SpeedLine(g.usage, engine.Stats()));
  return OkStatus();
}

Status Chat(Engine& engine, RunOptions& options) {
  LineReader reader(ChatHistoryPath());
  ASSIGN_OR_RETURN(const auto session, ChatSession::Create(engine, options, reader));
  return session->Run();
}

// The grammar of the option's file; null without one.
Result<std::shared_ptr<const grammar::CompiledGrammar>> CompileFile(Engine& engine,
                                                                    const RunOptions& options) {
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

Status Run(RunOptions& options) {
  RETURN_IF_ERROR(ValidateSampling(options.sampling));
  if (!options.grammar.empty() && !options.json_schema.empty())
    return base::InvalidArgument("--grammar and --json-schema both say what the answer must be");
  ProgressBar bar("loading");
  EngineConfig config{.model = options.model, .on_progress = bar.callback()};
  if (options.grammar.empty() && options.json_schema.empty())
    config.serving.grammar.memory_bytes = 0;  // the one grammar is compiled already
  ASSIGN_OR_RETURN(const auto engine, Engine::Load(config));
  bar.Clear();
  ASSIGN_OR_RETURN(options.sampling.constraint, CompileFile(*engine, options));
  if (options.chat || !options.has_prompt) {
    options.sampling =
        WithDefaults(options.sampling, Merge(options.said, OrCommon(engine->sampling())));
  }
  CatchInterrupts();
  return options.has_prompt ? Complete(*engine, options) : Chat(*engine, options);
}

// Adds common options first; the others of sampling have their own heading.
void AddSettings(const OptionSet& set, RunOptions& o, bool everyday) {
  const OptionSet under = everyday ? set : set.Under("Sampling");
  for (const Setting& setting : SettingsOf(o)) {
    if (setting.everyday != everyday) continue;
    const std::string name = StrCat("--", setting.name);
    under.Add(name == "--max-tokens" ? "-n,--max-tokens" : name, setting.value, setting.help)
        .ShowDefault();
  }
  if (everyday) return;
  under.Add("--dry-breaker", o.dry_breakers,
            "Strings that a repetition does not go across; not given: line end : \" *");
}

// The part of `sampling` that the command line gives.
SamplingDefaults Said(const OptionSet& set, const SamplingParams& sampling) {
  SamplingDefaults said;
  for (const SamplingField& field : SamplingFields())
    if (field.has_preference() && set.Find(StrCat("--", OptionName(field))).given())
      field.Prefer(said, field.Get(sampling));
  return said;
}

// Rejects options that a batch's requests set themselves.
Status RefuseOptionsOfRequests(const OptionSet& set, RunOptions& o) {
  std::vector<std::string> names = {"prompt", "chat",    "system",      "stats",
                                    "json",   "grammar", "json-schema", "dry-breaker"};
  for (const Setting& setting : SettingsOf(o)) names.emplace_back(setting.name);
  for (const std::string& name : names)
    if (set.Find(StrCat("--", name)).given())
      return base::InvalidArgument("--", name, ": with --batch each request says that itself");
  return OkStatus();
}

}  // namespace

Command AddRun(const OptionSet& set) {
  auto o = std::make_shared<RunOptions>();
  o->sampling.temperature = 0;
  auto files = std::make_shared<BatchFiles>();
  const OptionRef batch =
      set.Add("--batch", files->input,
              "Answer the requests of a JSONL file in the form of OpenAI's Batch API; interrupted, "
              "the same command goes on");
  set.Add("--output", files->output,
          "With --batch: file of the answers; not given: FILE.answers.jsonl beside it")
      .Needs(batch);
  const OptionRef prompt = set.Add(
      "-p,--prompt", o->prompt,
      "Raw prompt; control tokens in it count. \"\" starts from the beginning of a sequence. "
      "Without a prompt: a chat");
  set.Add("--chat", o->chat,
          "The prompt is a user's message for the chat template. Chats are sampled as the model's "
          "makers recommend, else with temperature 0.8, top-k 40, top-p 0.95 and min-p 0.05; the "
          "options below are of raw prompts, and of chats where given");
  set.Add("--system", o->system, "System message of a chat");
  AddSettings(set, *o, /*everyday=*/true);
  set.Add("--stats", o->stats, "Speed after each answer of a chat; else /stats shows it");
  set.Add("--json", o->json, "One JSON object on standard output");
  const OptionSet form = set.Under("Form of the answer");
  form.Add("--grammar", o->grammar, "File with a GBNF grammar that the answer must follow");
  form.Add("--json-schema", o->json_schema, "File with a JSON schema that the answer must satisfy");
  AddSettings(set, *o, /*everyday=*/false);
  AddModelOptions(set, o->model);
  AddOptions(set, OptionGroup::kContext, o->model);
  AddDecodeOptions(set, o->model);
  AddOptions(set, OptionGroup::kHot, o->model);
  AddSpecOptions(set, o->model);
  AddMeasurementOptions(set, o->model);
  return [o, files, prompt, batch, set]() -> Status {
    if (batch.given()) {
      RETURN_IF_ERROR(RefuseOptionsOfRequests(set, *o));
      return RunBatch(*files, o->model);
    }
    o->has_prompt = prompt.given();
    if (o->json && !o->has_prompt) return base::InvalidArgument("--json needs a prompt (-p)");
    o->said = Said(set, o->sampling);
    if (!o->has_prompt && !set.Find("--seed").given()) o->sampling.seed = base::RandomBits64();
    return Run(*o);
  };
}

}  // namespace thermocline::tools
