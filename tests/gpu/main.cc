// thermocline-gpu-test: checks every kernel of this build on a GPU and times them on shapes of 7B
// models. Exit code 0 if all checks passed, 1 if one failed, 77 without a GPU that can be used.
// --brief leaves out the large shapes and the speeds.
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/gpu/checks_dense.h"
#include "tests/gpu/checks_sparse.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;

int Skip(const char* reason) {
  std::printf("SKIPPED: %s\n", reason);
  return 77;
}

// nullptr, or why there is no GPU to test on.
const char* WhyNot(const DeviceOps& ops) {
  int count = 0;
  if (const int error = ops.runtime.count(&count); error != 0) return ops.runtime.error_text(error);
  if (count == 0) return "the driver finds no GPU";
  if (const int error = ops.runtime.use(0); error != 0) return ops.runtime.error_text(error);
  return nullptr;
}

int Report(const std::vector<Check>& checks) {
  int failed = 0;
  for (const Check& c : checks) {
    std::printf("%-28s %-44s %10.2g %10.2g  %s\n", c.name.c_str(), c.shape.c_str(), c.tolerance,
                c.error, c.ok() ? "ok" : "FAILED");
    failed += c.ok() ? 0 : 1;
  }
  std::fflush(stdout);
  return failed;
}

int RunChecks(const DeviceOps& ops, bool large) {
  std::printf("\n%-28s %-44s %10s %10s\n", "check", "shape", "tolerance", "error");
  int failed = Report(CheckRead(ops));
  failed += Report(CheckGemm(ops, large));
  failed += Report(CheckElementwise(ops));
  failed += Report(CheckRotate(ops));
  failed += Report(CheckAttention(ops, large));
  failed += Report(CheckReplay(ops));
  failed += Report(CheckLists(ops));
  failed += Report(CheckSignPrediction(ops, large));
  failed += Report(CheckGemmRows(ops, large));
  failed += Report(CheckEpilogues(ops));
  failed += Report(CheckSumRows(ops, large));
  failed += Report(CheckHandOff(ops));
  return failed;
}

void Report(const std::vector<Speed>& speeds, const Bandwidth& bandwidth) {
  for (const Speed& s : speeds) {
    const double gb_s = s.bytes / s.us / 1000;
    std::printf("%-28s %-44s %12.0f %9.2f %8.1f %6.1f%%\n", s.name.c_str(), s.shape.c_str(),
                s.bytes, s.us, gb_s, 100 * gb_s / bandwidth.read_gb_s);
  }
  std::fflush(stdout);
}

void RunSpeeds(const DeviceOps& ops) {
  const Bandwidth bandwidth = MeasureBandwidth(ops);
  std::printf("\nread bandwidth %.0f GB/s, copy %.0f GB/s (bytes read and written)\n",
              bandwidth.read_gb_s, bandwidth.copy_gb_s);
  std::printf("\n%-28s %-44s %12s %9s %8s %7s\n", "op", "shape", "bytes", "us", "GB/s", "of read");
  Report(MeasureDense(ops), bandwidth);
  const SparseSpeeds sparse = MeasureSparse(ops);
  Report(sparse.speeds, bandwidth);
  std::printf("\n%-28s %-44s %9s %9s %6s\n", "network, 1 in 10 active", "shape", "dense us", "us",
              "ratio");
  for (const Ratio& r : sparse.ratios)
    std::printf("%-28s %-44s %9.1f %9.1f %6.2f\n", r.name.c_str(), r.shape.c_str(), r.dense_us,
                r.sparse_us, r.dense_us / r.sparse_us);
}

int Run(bool brief) {
  const DeviceOps* ops = kernels::CudaOps();
  if (ops == nullptr) return Skip("built without CUDA");
  if (const char* reason = WhyNot(*ops); reason != nullptr) return Skip(reason);
  kernels::DeviceProperties p;
  MustDo(*ops, ops->runtime.properties(0, &p), "asking what the GPU is");
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %zu MiB%s\n", p.name, p.major,
              p.minor, p.multiprocessors, p.memory_bytes >> 20,
              p.unified ? ", one memory with the processor" : "");
  std::printf("driver for CUDA %d.%d, runtime %d.%d, kernels for %s\n", p.driver / 1000,
              p.driver % 1000 / 10, p.runtime / 1000, p.runtime % 1000 / 10,
              ops->runtime.architectures);
  if (const int error = ops->runtime.probe(); error != 0)
    return Skip(ops->runtime.error_text(error));
  const int failed = RunChecks(*ops, !brief);
  if (!brief) RunSpeeds(*ops);
  std::printf("\n%s: %d checks failed\n", failed == 0 ? "passed" : "FAILED", failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace thermocline::gpu

int main(int argc, char** argv) {
  const bool brief = argc > 1 && std::strcmp(argv[1], "--brief") == 0;
  if (argc > 2 || (argc == 2 && !brief)) {
    std::fprintf(stderr, "usage: thermocline-gpu-test [--brief]\n");
    return 2;
  }
  return thermocline::gpu::Run(brief);
}
