// thermocline-gpu-test: checks every kernel of this build on a GPU and times them on shapes of 7B
// models. Exit code: 0 if all checks passed, 1 if one failed, 2 for invalid arguments, 77 if there
// is no usable GPU.
//
//   --brief        skips the large shapes and the speeds
//   --list         prints the names of the parts, one per line; each can run in its own process
//   --only PART    runs only that part
//   --json         prints one JSON object per line instead of tables
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#ifdef THERMOCLINE_EMULATED
#include "tests/cuda_emulated/emulated_ops.h"
#endif
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/checks_sparse.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;

struct Options {
  bool brief = false, json = false, list = false;
  std::string only;
};

// This program's op table: the GPU's or, to test the program itself, the emulator's.
#ifdef THERMOCLINE_EMULATED
const DeviceOps* TheOps() { return &kernels::EmulatedOps(); }
#else
const DeviceOps* TheOps() { return kernels::CudaOps(); }
#endif

struct Part {
  const char* name;
  std::vector<Check> (*run)(const DeviceOps& ops, bool large);
};
template <std::vector<Check> (*check)(const DeviceOps&)>
std::vector<Check> OfAnySize(const DeviceOps& ops, bool) {
  return check(ops);
}
constexpr Part kParts[] = {{"read", OfAnySize<CheckRead>},
                           {"gemm", CheckGemm},
                           {"elementwise", OfAnySize<CheckElementwise>},
                           {"rotate", OfAnySize<CheckRotate>},
                           {"attention", CheckAttention},
                           {"replay", OfAnySize<CheckReplay>},
                           {"lists", OfAnySize<CheckLists>},
                           {"sign_prediction", CheckSignPrediction},
                           {"gemm_rows", CheckGemmRows},
                           {"epilogues", OfAnySize<CheckEpilogues>},
                           {"sum_rows", CheckSumRows},
                           {"hand_off", OfAnySize<CheckHandOff>}};
constexpr const char* kSpeeds = "speeds";  // the last part

int Skip(const char* reason) {
  std::printf("SKIPPED: %s\n", reason);
  return 77;
}

// nullptr, or the reason why there is no usable GPU.
const char* WhyNot(const DeviceOps& ops) {
  int count = 0;
  if (const int error = ops.runtime.count(&count); error != 0) return ops.runtime.error_text(error);
  if (count == 0) return "the driver finds no GPU";
  if (const int error = ops.runtime.use(0); error != 0) return ops.runtime.error_text(error);
  return nullptr;
}

int Report(const std::vector<Check>& checks, bool json) {
  int failed = 0;
  for (const Check& c : checks) {
    if (json)
      std::printf(
          "{\"check\": \"%s\", \"shape\": \"%s\", \"tolerance\": %g, \"error\": %g, \"ok\": %s}\n",
          c.name.c_str(), c.shape.c_str(), c.tolerance, c.error < 1e300 ? c.error : 1e300,
          c.ok() ? "true" : "false");
    else
      std::printf("%-28s %-44s %10.2g %10.2g  %s\n", c.name.c_str(), c.shape.c_str(), c.tolerance,
                  c.error, c.ok() ? "ok" : "FAILED");
    failed += c.ok() ? 0 : 1;
  }
  std::fflush(stdout);
  return failed;
}

int RunChecks(const DeviceOps& ops, const Options& options) {
  if (!options.json)
    std::printf("\n%-28s %-44s %10s %10s\n", "check", "shape", "tolerance", "error");
  int failed = 0;
  for (const Part& part : kParts) {
    if (options.only.empty() || options.only == part.name)
      failed += Report(part.run(ops, !options.brief), options.json);
  }
  return failed;
}

void Report(const std::vector<Speed>& speeds, const Bandwidth& bandwidth, bool json) {
  for (const Speed& s : speeds) {
    const double gb_s = s.bytes / s.us / 1000;
    if (json)
      std::printf(
          "{\"op\": \"%s\", \"shape\": \"%s\", \"bytes\": %.0f, \"us\": %.3f, \"gb_s\": %.1f, "
          "\"of_read\": %.3f}\n",
          s.name.c_str(), s.shape.c_str(), s.bytes, s.us, gb_s, gb_s / bandwidth.read_gb_s);
    else
      std::printf("%-28s %-44s %12.0f %9.2f %8.1f %6.1f%%\n", s.name.c_str(), s.shape.c_str(),
                  s.bytes, s.us, gb_s, 100 * gb_s / bandwidth.read_gb_s);
  }
  std::fflush(stdout);
}

void RunSpeeds(const DeviceOps& ops, const Options& options) {
  const Bandwidth bandwidth = MeasureBandwidth(ops, options.brief);
  if (options.json) {
    std::printf("{\"read_gb_s\": %.1f, \"copy_gb_s\": %.1f}\n", bandwidth.read_gb_s,
                bandwidth.copy_gb_s);
  } else {
    std::printf("\nread bandwidth %.0f GB/s, copy %.0f GB/s (bytes read and written)\n",
                bandwidth.read_gb_s, bandwidth.copy_gb_s);
    std::printf("\n%-28s %-44s %12s %9s %8s %7s\n", "op", "shape", "bytes", "us", "GB/s",
                "of read");
  }
  Report(MeasureDense(ops, options.brief), bandwidth, options.json);
  const SparseSpeeds sparse = MeasureSparse(ops, options.brief);
  Report(sparse.speeds, bandwidth, options.json);
  Report({MeasureHandOff(ops)}, bandwidth, options.json);
  if (!options.json)
    std::printf("\n%-28s %-44s %9s %9s %6s\n", "network, 1 in 10 active", "shape", "dense us", "us",
                "ratio");
  for (const Ratio& r : sparse.ratios)
    std::printf(options.json ? "{\"network\": \"%s\", \"shape\": \"%s\", \"dense_us\": %.1f, "
                               "\"sparse_us\": %.1f, \"ratio\": %.2f}\n"
                             : "%-28s %-44s %9.1f %9.1f %6.2f\n",
                r.name.c_str(), r.shape.c_str(), r.dense_us, r.sparse_us, r.dense_us / r.sparse_us);
}

int List() {
  for (const Part& part : kParts) std::printf("%s\n", part.name);
  std::printf("%s\n", kSpeeds);
  return 0;
}

void Describe(const DeviceOps& ops, bool json) {
  kernels::DeviceProperties p;
  MustDo(ops, ops.runtime.properties(0, &p), "asking what the GPU is");
  if (json) {
    std::printf(
        "{\"gpu\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, "
        "\"memory_mib\": %zu, "
        "\"driver\": %d, \"runtime\": %d, \"kernels_for\": \"%s\"}\n",
        p.name, p.major, p.minor, p.multiprocessors, p.memory_bytes >> 20, p.driver, p.runtime,
        ops.runtime.architectures);
    return;
  }
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %zu MiB%s\n", p.name, p.major,
              p.minor, p.multiprocessors, p.memory_bytes >> 20,
              p.unified ? ", one memory with the processor" : "");
  std::printf("driver for CUDA %d.%d, runtime %d.%d, kernels for %s\n", p.driver / 1000,
              p.driver % 1000 / 10, p.runtime / 1000, p.runtime % 1000 / 10,
              ops.runtime.architectures);
}

int Run(const Options& options) {
  if (options.list) return List();
  const DeviceOps* ops = TheOps();
  if (ops == nullptr) return Skip("built without CUDA");
  if (const char* reason = WhyNot(*ops); reason != nullptr) return Skip(reason);
  if (options.only.empty() || !options.json) Describe(*ops, options.json);
  if (const int error = ops->runtime.probe(); error != 0)
    return Skip(ops->runtime.error_text(error));
  const int failed = RunChecks(*ops, options);
  if (options.only == kSpeeds || (options.only.empty() && !options.brief)) RunSpeeds(*ops, options);
  if (!options.json)
    std::printf("\n%s: %d checks failed\n", failed == 0 ? "passed" : "FAILED", failed);
  return failed == 0 ? 0 : 1;
}

bool IsPart(const std::string& name) {
  for (const Part& part : kParts)
    if (name == part.name) return true;
  return name == kSpeeds;
}

bool Parse(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--brief")
      out.brief = true;
    else if (arg == "--json")
      out.json = true;
    else if (arg == "--list")
      out.list = true;
    else if (arg == "--only" && i + 1 < argc && IsPart(argv[i + 1]))
      out.only = argv[++i];
    else
      return false;
  }
  return true;
}

}  // namespace
}  // namespace thermocline::gpu

int main(int argc, char** argv) {
  thermocline::gpu::Options options;
  if (!thermocline::gpu::Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: thermocline-gpu-test [--brief] [--json] [--list | --only PART]\n");
    return 2;
  }
  return thermocline::gpu::Run(options);
}
