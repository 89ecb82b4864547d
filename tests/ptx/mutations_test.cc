// Bugs inserted into the kernels' PTX are detected, by name.
#include <gtest/gtest.h>

#include <regex>

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/checks_sparse.h"
#include "tests/ptx/runner.h"

namespace thermocline::gpu {
namespace {

using Ops = const kernels::DeviceOps&;
using CheckAll = std::vector<Check> (*)(Ops);

std::vector<Check> Attention(Ops ops) { return CheckAttention(ops, false); }
std::vector<Check> Rows(Ops ops) { return CheckGemmRows(ops, false); }
std::vector<Check> Sums(Ops ops) { return CheckSumRows(ops, false); }
std::vector<Check> Gemms(Ops ops) { return CheckGemm(ops, false); }

struct Mutation {
  const char* name;
  const char* file;  // or several, separated by |
  const char* from;  // a regular expression; all its matches in the file
  const char* to;
  CheckAll check;
  const char* found;  // text of a finding; "": only the result is wrong
};

constexpr const char* kOddLanes =
    "{ .reg .pred %odd; .reg .b32 %lane; mov.u32 %lane, %laneid; and.b32 %lane, %lane, 1; "
    "setp.eq.s32 %odd, %lane, 1; @%odd bar.sync \t0; }";

constexpr Mutation kMutations[] = {
    {"a __syncthreads removed: queries of attention", "attention", "bar.sync \t0;", "", Attention,
     "nobody has written"},
    {"a __syncthreads removed: the norm's tile", "elementwise", "bar.sync \t0;", "",
     CheckElementwise, "a race"},
    {"a __syncthreads removed: the block's ticket", "gemm_rows", "bar.sync \t0;", "",
     CheckEpilogues, "a race"},
    {"a __syncwarp removed", "gemm_rows", "bar.warp.sync \t-1;", "", Rows, "a race"},
    {"a __threadfence removed", "gemm_rows", "membar.gl;", "", CheckEpilogues, "a race"},
    {"a mask that leaves lanes out", "sum_float_rows|gemm_rows|gemm_float_rows",
     "(bar.warp.sync) \t-1;", "$1 \t65535;", Rows, "its own mask leaves out"},
    {"a shuffle the other way", "gemm_float_rows", "shfl.sync.bfly", "shfl.sync.down", Rows, ""},
    {"a barrier that not all lanes reach", "rotate", "bar.sync \t0;", kOddLanes, CheckRotate,
     "lanes that end while others"},
    {"a table of the host", "sum_rows", "(ld.param.u64 \t(%rd[0-9]+), [^;]*;)",
     "$1 mov.u64 \t$2, 80;", Sums, "in no allocation"},
    {"an index one too large", "elementwise", "(ld.global[.a-z]*.f32 .*%rd[0-9]+)\\]", "$1+4]",
     CheckElementwise, "nobody has written"},
    {"a row far behind the end", "rotate", "(st.global.* \t\\[%rd[0-9]+)\\]", "$1+1048576]",
     CheckRotate, "in no allocation"},
    {"an address between two elements", "sum_rows", "(ld.shared.u32 .*)\\]", "$1+2]", Sums,
     "not aligned"},
    {"an atomic sum that is not", "sum_rows",
     "atom.shared.add.u32 \t(%r[0-9]+), (\\[.*\\]), (%r[0-9]+);",
     "ld.shared.u32 \t$1, $2; st.shared.u32 \t$2, $3;", Sums, "a race"},
    {"shared memory that was not written", "attention", "st.shared.f32", "//", Attention,
     "nobody has written"},
    {"a wait for copies removed", "gemm_row_tiles", "cp.async.wait_group 1;", "", Rows,
     "is under way"},
    {"a __syncthreads removed: the tiles' stages", "gemm_row_tiles",
     "(cp.async.wait_group 1;[^;]*)bar.sync \t0;", "$1", Rows, "a race"},
    {"a copy beyond the row", "gemm_row_tiles", "(cp.async.cg.*), 16, [^;]*;", "$1, 16, 16;", Rows,
     "nobody has written"},
    {"a wait for one group of copies too few", "sum_row_tiles", "cp.async.wait_group 2;",
     "cp.async.wait_group 3;", Sums, "is under way"},
    {"a __syncthreads removed: the sums' steps", "sum_row_tiles",
     "(cp.async.wait_group 2;[^;]*)bar.sync \t0;", "$1", Sums, "a race"},
    {"bytes of other rows", "sum_row_tiles", "(mov.u32 .*), 21520;", "$1, 4180;", Sums, ""},
    {"a result one place too far", "gemm_few", "(st.global.f32 \t\\[%rd[0-9]+)\\]", "$1+4]", Gemms,
     "a race"},
};

class Mutations : public testing::TestWithParam<Mutation> {};

TEST_P(Mutations, AreFound) {
  const Mutation& mutation = GetParam();
  int places = 0;
  ptx::Runner runner(THERMOCLINE_PTX "/sm_80", [&](const std::string& file, std::string& text) {
    if (("|" + std::string(mutation.file) + "|").find("|" + file + "|") == std::string::npos)
      return;
    const std::regex from(mutation.from);
    places +=
        static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), from), {}));
    text = std::regex_replace(text, from, mutation.to);
  });
  ASSERT_GT(places, 0);
  const std::vector<Check> checks = mutation.check(kernels::EmulatedOps());
  const std::vector<std::string> findings = runner.TakeFindings();
  const auto wrong =
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return !c.ok(); });
  std::printf("  %d places, %zu findings, %d wrong results\n", places, findings.size(),
              static_cast<int>(wrong));
  if (!findings.empty()) std::printf("  %s\n", findings[0].c_str());
  EXPECT_GT(findings.size() + static_cast<std::size_t>(wrong), 0U);
  const bool named = std::any_of(findings.begin(), findings.end(), [&](const std::string& text) {
    return text.find(mutation.found) != std::string::npos;
  });
  EXPECT_TRUE(named || *mutation.found == '\0') << mutation.found;
}

INSTANTIATE_TEST_SUITE_P(All, Mutations, testing::ValuesIn(kMutations),
                         [](const auto& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace thermocline::gpu
