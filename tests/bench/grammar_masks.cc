// Measures the time of masks on a real vocabulary, and writes them, for docs/benchmarks.md and
// tests/bench/grammar_masks.py, which compares them with other implementations.
//
//   grammar_masks MODEL OUT < CASES
// CASES: a JSON object a line, {"schema": {...}} or {"grammar": "GBNF"}, and "text", an answer.
// OUT: for each case and each place of its text a mask, ceil(V / 64) words of 64 bits. Standard
// output: a JSON object a line with the text's tokens and the times.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "engine/base/json.h"
#include "engine/base/stopwatch.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/grammar/matcher.h"
#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/text/tokenizer.h"

namespace {

using namespace thermocline;

double At(std::vector<double>& sorted, double share) {
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty()
             ? 0
             : sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

int Fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto file = model::OpenModelFile(argv[1]);
  if (!file.ok()) return Fail(file.status());
  const auto tokenizer = text::Tokenizer::Create((*file)->vocabulary);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  const int size = (*tokenizer)->vocabulary().size();
  grammar::GrammarCompiler compiler(**tokenizer, size, {});
  std::FILE* out = std::fopen(argv[2], "wb");
  if (out == nullptr) return std::perror(argv[2]), 1;
  // The first compilation includes indexing the vocabulary.
  const base::Stopwatch first;
  const auto any = compiler.Compile({.kind = GrammarSpec::Kind::kChoice, .choices = {"a"}});
  if (!any.ok()) return Fail(any.status());
  std::fprintf(stderr, "vocabulary of %d tokens indexed in %.1f ms, %zu bytes\n", size,
               first.Seconds() * 1e3, (*any)->vocabulary().bytes_held());
  std::vector<double> all;
  for (std::string line; std::getline(std::cin, line);) {
    const auto entry = base::ParseJson(line);
    if (!entry.ok()) return Fail(entry.status());
    const Json* schema = entry->Find("schema");
    GrammarSpec spec{
        .kind = schema != nullptr ? GrammarSpec::Kind::kJsonSchema : GrammarSpec::Kind::kGbnf,
        .text = schema != nullptr ? schema->Dump() : entry->Find("grammar")->as_string()};
    const base::Stopwatch compiling;
    const auto compiled = compiler.Compile(spec);
    const double compile_s = compiling.Seconds();
    if (!compiled.ok()) return Fail(compiled.status());
    const std::vector<int> tokens =
        (*tokenizer)->Encode(entry->Find("text")->as_string(), text::EncodeOptions{});
    grammar::Matcher matcher(base::IntSize(tokens) + 1);
    std::vector<double> times;
    bool allowed = true;
    for (int round = 0; round < 3; ++round) {
      matcher.Begin(*compiled);
      for (std::size_t i = 0; i <= tokens.size(); ++i) {
        const base::Stopwatch watch;
        const auto mask = matcher.Mask();
        times.push_back(watch.Seconds() * 1e6);
        if (round == 0) std::fwrite(mask.data(), sizeof(mask[0]), mask.size(), out);
        if (i == tokens.size()) break;
        allowed = allowed && grammar::HasBit(mask, tokens[i]);
        matcher.Accept(tokens[i]);
      }
    }
    all.insert(all.end(), times.begin(), times.end());
    const auto place = std::max_element(times.begin(), times.end()) - times.begin();
    std::cout << Json(Json::Object{{"tokens", Json::Array(tokens.begin(), tokens.end())},
                                   {"allowed", allowed},
                                   {"complete", matcher.complete()},
                                   {"compile_ms", compile_s * 1e3},
                                   {"states", (*compiled)->automaton().num_states()},
                                   {"tables", (*compiled)->tables()},
                                   {"bytes", (*compiled)->bytes_held()},
                                   {"slowest_place", place % (std::ssize(tokens) + 1)},
                                   {"mask_us_p50", At(times, 0.5)},
                                   {"mask_us_p99", At(times, 0.99)},
                                   {"mask_us_max", At(times, 1)}})
                     .Dump()
              << std::endl;
  }
  std::fclose(out);
  std::fprintf(stderr, "%zu masks: p50 %.1f us, p99 %.1f us, most %.1f us\n", all.size(),
               At(all, 0.5), At(all, 0.99), At(all, 1));
  return 0;
}
