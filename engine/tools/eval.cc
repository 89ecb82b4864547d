// `thermocline eval`: perplexity and logits of a text or of given tokens.
#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "engine/base/file.h"
#include "engine/exec/loaded_model.h"
#include "engine/exec/sampler.h"
#include "engine/tools/console.h"
#include "engine/tools/npy.h"

namespace thermocline::tools {
namespace {

struct Options {
  std::string model, text, tokens_json, logits, isa;
  int window = 512, max_tokens = 0, threads = 0;
  bool decode = false, json = false;
};

// The tokens to score: of the text, or given as JSON ([[...], ...], each sequence a window of its
// own).
Result<std::vector<std::vector<int>>> Windows(const Options& options,
                                              const exec::LoadedModel& model) {
  std::vector<std::vector<int>> windows;
  if (!options.tokens_json.empty()) {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(options.tokens_json));
    ASSIGN_OR_RETURN(const Json json, base::ParseJson(text));
    if (!json.is_array())
      return base::InvalidArgument(options.tokens_json,
                                   ": expected an array of arrays of token ids");
    for (const Json& row : json.as_array()) {
      windows.emplace_back();
      if (!row.is_array())
        return base::InvalidArgument(options.tokens_json,
                                     ": expected an array of arrays of token ids");
      for (const Json& id : row.as_array()) {
        if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.config.vocab_size)
          return base::InvalidArgument(options.tokens_json, ": ", id.Dump(), " is no token id");
        windows.back().push_back(static_cast<int>(id.as_int()));
      }
    }
    return windows;
  }
  if (model.tokenizer == nullptr)
    return base::FailedPrecondition(model.path, ": the model file holds no tokenizer");
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(options.text));
  std::vector<int> tokens = model.tokenizer->Encode(text, {});
  if (options.max_tokens > 0 && static_cast<int>(tokens.size()) > options.max_tokens)
    tokens.resize(static_cast<std::size_t>(options.max_tokens));
  const bool bos = model.tokenizer->vocabulary().add_bos;
  const std::size_t room = static_cast<std::size_t>(options.window) - (bos ? 1 : 0);
  for (std::size_t begin = 0; begin < tokens.size(); begin += room) {
    windows.emplace_back();
    if (bos) windows.back().push_back(model.tokenizer->vocabulary().bos);
    const std::size_t end = std::min(tokens.size(), begin + room);
    windows.back().insert(windows.back().end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                          tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return windows;
}

struct Totals {
  double negative_log_likelihood = 0;
  std::int64_t scored = 0;
};

// Runs one window; every position's logits go to `npy` if it is there.
Status Score(const std::vector<int>& window, int chunk, exec::Transformer& transformer,
             exec::KvCache& cache, NpyWriter* npy, Totals& totals) {
  const auto vocab = static_cast<std::size_t>(transformer.config().vocab_size);
  cache.SetLength(0);
  for (std::size_t begin = 0; begin < window.size(); begin += static_cast<std::size_t>(chunk)) {
    const std::size_t count = std::min(static_cast<std::size_t>(chunk), window.size() - begin);
    const auto logits = transformer.Forward(std::span(window).subspan(begin, count), cache,
                                            exec::Transformer::Logits::kAll);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = logits.subspan(i * vocab, vocab);
      if (npy != nullptr) RETURN_IF_ERROR(npy->Append(row));
      if (begin + i + 1 >= window.size()) continue;
      totals.negative_log_likelihood -= exec::LogProbability(row, window[begin + i + 1]);
      ++totals.scored;
    }
  }
  return OkStatus();
}

Status Eval(const Options& options) {
  if (options.text.empty() == options.tokens_json.empty())
    return base::InvalidArgument("give either --text or --tokens");
  ProgressBar bar("loading");
  ASSIGN_OR_RETURN(const auto model, exec::LoadModel({.model = options.model,
                                                      .threads = options.threads,
                                                      .cpu_isa = options.isa,
                                                      .on_progress = bar.callback()}));
  bar.Clear();
  ASSIGN_OR_RETURN(const auto windows, Windows(options, *model));
  std::size_t longest = 1, rows = 0;
  for (const auto& window : windows) {
    longest = std::max(longest, window.size());
    rows += window.size();
  }
  if (static_cast<int>(longest) > model->config.max_position_embeddings) {
    return base::OutOfRange("a window of ", longest, " tokens does not fit the model's context of ",
                            model->config.max_position_embeddings);
  }
  const int chunk = options.decode ? 1 : 32;
  const auto transformer = model->MakeTransformer(chunk, static_cast<int>(longest), true);
  ASSIGN_OR_RETURN(auto cache, exec::KvCache::Create(model->config, static_cast<int>(longest)));
  std::unique_ptr<NpyWriter> npy;
  if (!options.logits.empty()) {
    ASSIGN_OR_RETURN(npy, NpyWriter::Create(options.logits, static_cast<std::int64_t>(rows),
                                            model->config.vocab_size));
  }
  Totals totals;
  ProgressBar eval_bar("evaluating");
  for (std::size_t i = 0; i < windows.size(); ++i) {
    RETURN_IF_ERROR(Score(windows[i], chunk, *transformer, cache, npy.get(), totals));
    eval_bar.Show(static_cast<double>(i + 1) / static_cast<double>(windows.size()));
  }
  eval_bar.Clear();
  if (npy != nullptr) RETURN_IF_ERROR(npy->Commit());
  const double mean =
      totals.scored > 0 ? totals.negative_log_likelihood / static_cast<double>(totals.scored) : 0;
  if (options.json) {
    PrintJson(Json::Object{{"perplexity", std::exp(mean)},
                           {"loss_nats", mean},
                           {"tokens", totals.scored},
                           {"windows", static_cast<std::int64_t>(windows.size())}});
  } else {
    std::printf("perplexity %.4f over %lld tokens (%.4f nats), %zu windows\n", std::exp(mean),
                static_cast<long long>(totals.scored), mean, windows.size());
  }
  return OkStatus();
}

}  // namespace

Command AddEval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "Model file, folder or built-in name")->required();
  app.add_option("--text", o->text, "Text file to score, in windows one after the other");
  app.add_option("--tokens", o->tokens_json,
                 "JSON file of token ids to score instead: [[...], ...]");
  app.add_option("--window", o->window, "Tokens in a window")->check(CLI::Range(2, 1 << 20));
  app.add_option("--max-tokens", o->max_tokens, "Score only the first tokens of the text; 0 = all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--logits", o->logits, "Write every position's logits to this .npy");
  app.add_flag("--decode", o->decode,
               "One token at a time, as decoding does, instead of in chunks");
  app.add_option("-t,--threads", o->threads, "Kernel threads; 0 = all processors")
      ->check(CLI::Range(0, 256));
  app.add_option("--cpu-isa", o->isa, "avx512, avx2 or reference");
  app.add_flag("--json", o->json, "One JSON object on standard output");
  return [o] { return Eval(*o); };
}

}  // namespace thermocline::tools
