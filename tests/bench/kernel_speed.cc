// Measures the matrix products on cached weights: billions of multiply-adds per second of one
// thread, for each table of this processor, type and number of tokens. The tables are interleaved,
// so that noise affects all alike; each figure is the best of its rounds.
//
//   kernel_speed [--isa NAME,...] [--types NAME,...] [--tokens N,...] [--rows R] [--cols C]
//   [--rounds N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/random_tokens.h"

namespace thermocline::kernels {
namespace {

struct Arguments {
  std::string isa, types = "q4_0,q8_0,q4_k,q6_k", tokens = "1,4,64";
  int rows = 64, cols = 4096, rounds = 7;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

Arguments Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--isa") a.isa = value;
    if (name == "--types") a.types = value;
    if (name == "--tokens") a.tokens = value;
    if (name == "--rows") a.rows = std::atoi(value.c_str());
    if (name == "--cols") a.cols = std::atoi(value.c_str());
    if (name == "--rounds") a.rounds = std::atoi(value.c_str());
  }
  return a;
}

DType TypeNamed(const std::string& name) {
  for (int t = 0; t < kNumDTypes; ++t) {
    if (name == kDTypeTraits[t].name) return static_cast<DType>(t);
  }
  std::fprintf(stderr, "no type %s has kernels\n", name.c_str());
  std::exit(2);
}

// A matrix, tokens and their product.
struct Work {
  RandomTokens x;
  std::vector<float> out;
  std::vector<std::uint8_t> packed;
  GemmParams params;

  Work(DType type, int rows, int cols, int tokens)
      : x(tokens, cols),
        out(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(rows)),
        packed(Pack(type, RandomRows(type, rows, cols, 3), rows, cols)),
        params{.weights = {type, rows, cols, packed.data()},
               .activations = x.view,
               .tokens = tokens,
               .out = out.data(),
               .out_stride = rows,
               .panel_begin = 0,
               .panel_end = NumPanels(rows)} {}
  double multiply_adds() const {
    return double(params.tokens) * params.weights.rows * params.weights.cols;
  }
};

double Seconds(const OpTable& ops, const Work& work, int repetitions) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) ops.gemm(work.params);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Measure(const std::vector<const OpTable*>& tables, DType type, int tokens,
             const Arguments& a) {
  const Work work(type, a.rows, a.cols, tokens);
  const int repetitions = std::max(1, static_cast<int>(6e8 / work.multiply_adds()));
  std::vector<double> best(tables.size(), 1e9);
  for (int round = 0; round < a.rounds; ++round) {
    for (std::size_t i = 0; i < tables.size(); ++i)
      best[i] = std::min(best[i], Seconds(*tables[i], work, repetitions) / repetitions);
  }
  std::printf("%-5s %4d", Traits(type).name, tokens);
  for (const double seconds : best) std::printf(" %9.1f", work.multiply_adds() / seconds / 1e9);
  std::printf("\n");
}

int Main(int argc, char** argv) {
  const Arguments a = Parse(argc, argv);
  std::vector<const OpTable*> tables;
  for (int i = 0; i + 1 < CpuTables().count; ++i) {
    const std::vector<std::string> wanted = Split(a.isa);
    if (wanted.empty() ||
        std::find(wanted.begin(), wanted.end(), CpuTables().tables[i]->name) != wanted.end())
      tables.push_back(CpuTables().tables[i]);
  }
  std::printf("type  tokens");
  for (const OpTable* table : tables) std::printf("%8s  ", table->name);
  std::printf("\n");
  for (const std::string& type : Split(a.types)) {
    for (const std::string& tokens : Split(a.tokens))
      Measure(tables, TypeNamed(type), std::atoi(tokens.c_str()), a);
  }
  return 0;
}

}  // namespace
}  // namespace thermocline::kernels

int main(int argc, char** argv) { return thermocline::kernels::Main(argc, argv); }
