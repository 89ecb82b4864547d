// The solver against an exhaustive search, on small problems.
#include "engine/placement/solver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/engine/placement/random_problems.h"

namespace thermocline::placement {
namespace {

// Calls `visit` with every placement in complete batches.
class AllPlacements {
 public:
  AllPlacements(const Problem& problem, std::function<void(const Counts&)> visit)
      : p_(problem), visit_(std::move(visit)) {}

  void Run() {
    const auto layers = static_cast<int>(p_.layers.size());
    const bool hot = p_.machine.hot.has_value(), unified = hot && p_.machine.unified;
    counts_.hot.assign(p_.layers.size(), 0);
    counts_.end.assign(p_.layers.size(), 0);
    for (const bool held : {false, true}) {
      counts_.deciding_held = held;
      for (int m = unified ? layers : 0; m <= (hot ? layers : 0); ++m) {
        counts_.hot_homes = m;
        for (const bool head : {false, true}) {
          if ((head && !hot) || (!head && unified)) continue;
          counts_.head_hot = head;
          Layer(0);
        }
      }
    }
  }

 private:
  void Layer(std::size_t l) {
    if (l == p_.layers.size()) return visit_(counts_);
    const std::int64_t n = p_.layers[l].neurons();
    const bool hot = p_.machine.hot.has_value(), unified = hot && p_.machine.unified;
    const bool flash = p_.machine.flash_reads_per_s > 0;
    for (std::int64_t h = 0;; h = std::min<std::int64_t>(n, h + p_.batch)) {
      for (std::int64_t e = h;; e = std::min<std::int64_t>(n, e + p_.batch)) {
        counts_.hot[l] = h, counts_.end[l] = e;
        const bool allowed = (flash || e == n) && (hot || h == 0) && (!unified || e == h);
        if (allowed) Layer(l + 1);
        if (e == n) break;
      }
      if (h == n) break;
    }
  }

  const Problem& p_;
  std::function<void(const Counts&)> visit_;
  Counts counts_;
};

Counts CountsOf(const Placement& placement) {
  Counts out{.head_hot = placement.head_hot, .deciding_held = placement.deciding_held};
  for (const LayerPlacement& layer : placement.layers) {
    out.hot_homes += layer.home_hot;
    out.hot.push_back(layer.hot);
    out.end.push_back(layer.hot + layer.memory);
  }
  return out;
}

// Checks that the placement is valid, has the claimed cost, and fits.
void CheckPlacement(const Problem& problem, const Placement& placement) {
  const Outcome outcome = Compute(problem, CountsOf(placement));
  EXPECT_NEAR(placement.token_s, outcome.seconds, 1e-9 * outcome.seconds);
  EXPECT_EQ(placement.hot_bytes, outcome.hot_bytes);
  EXPECT_EQ(placement.memory_bytes, outcome.memory_bytes);
  EXPECT_TRUE(outcome.fits);
  double sum = placement.head_s + placement.switch_s;
  for (const LayerPlacement& layer : placement.layers) sum += layer.token_s();
  EXPECT_NEAR(placement.token_s, sum, 1e-9 * sum);
}

TEST(Solver, IsNearTheBestOfAllPlacementsAndSaysHowNear) {
  Random random(1);
  int solved = 0, refused = 0, split = 0, flash = 0, unified = 0, held = 0;
  for (int i = 0; i < 3000; ++i) {
    const Problem problem = RandomProblem(random, 3, i % 3 == 0 ? 6 : 4);
    double best = std::numeric_limits<double>::infinity();
    AllPlacements(problem, [&](const Counts& counts) {
      const Outcome outcome = Compute(problem, counts);
      if (outcome.fits) best = std::min(best, outcome.seconds);
    }).Run();
    const auto placement = Solve(problem);
    if (best == std::numeric_limits<double>::infinity()) {
      EXPECT_EQ(placement.status().code(), StatusCode::kResourceExhausted);
      ++refused;
      continue;
    }
    ASSERT_TRUE(placement.ok()) << i << ": " << placement.status().message();
    EXPECT_GE(placement->token_s, best * (1 - 1e-9)) << i;
    EXPECT_LE(placement->token_s, best * 1.005) << i;
    EXPECT_LE(placement->token_s * (1 - placement->gap), best * (1 + 1e-9)) << i;
    CheckPlacement(problem, *placement);
    ++solved;
    unified += problem.machine.hot.has_value() && problem.machine.unified;
    const Counts counts = CountsOf(*placement);
    split += counts.hot_homes > 0 && counts.hot_homes < static_cast<int>(problem.layers.size());
    flash += placement->flash_bytes > 0;
    held += placement->flash_bytes > 0 && placement->deciding_held;
    if (testing::Test::HasFailure()) return;
  }
  // Problems of all kinds occurred.
  EXPECT_GT(solved, 1000);
  EXPECT_GT(std::min({refused, split, flash, unified, held}), 50)
      << refused << " " << split << " " << flash << " " << unified << " " << held;
}

std::vector<double> Zipf(std::size_t n, double scale, double exponent) {
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = std::min(0.98, scale * std::pow(static_cast<double>(i + 1), -exponent));
  return out;
}

// 80 layers of 28672 neurons, D = 8192, in 4 bits.
Problem Large(Reading reading, std::int64_t hot_gib, std::int64_t memory_gib, bool alike) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  constexpr std::int64_t kHidden = 8192, kKeys = 1024;
  Problem p;
  p.head_bytes = 32000 * kHidden * 18 / 32;
  p.sync_bytes = 8 * kHidden;
  p.hot_fixed_bytes = kGib / 2;
  p.memory_fixed_bytes = kGib;
  p.machine.cold = {60e9, 50e9, 50e9, 50e-9, 5e-6};
  p.machine.hot = Processor{800e9, 500e9, 500e9, 1e-9, 8e-6};
  p.machine.hot_bytes = hot_gib * kGib;
  p.machine.memory_bytes = memory_gib * kGib;
  p.machine.sync_s = 10e-6;
  p.machine.link_bytes_per_s = 20e9;
  p.machine.flash_reads_per_s = 300e3;
  p.machine.flash_bytes_per_s = 3e9;
  for (int l = 0; l < 80; ++l) {
    const double skew = alike ? 0 : 0.1 * std::sin(l);
    p.layers.push_back({.reading = reading,
                        .overprediction = 1.5,
                        .home_bytes = 2 * kHidden * (kHidden + kKeys) * 18 / 32,
                        .kv_bytes = 4096 * 2 * kKeys * 2,
                        .deciding_bytes = kHidden * 18 / 32,
                        .rest_bytes = kHidden * (18 + (alike || l % 3 != 0 ? 18 : 22)) / 32,
                        .predictor_bytes = reading == Reading::kPredicted ? 1028 : 0,
                        .frequency = Zipf(28672, 20 * (1 + skew), 0.6 + skew)});
  }
  return p;
}

TEST(Solver, SolvesTheLargestModels) {
  for (const bool alike : {true, false}) {
    for (const Reading reading : {Reading::kDense, Reading::kExact, Reading::kPredicted}) {
      for (const auto& [hot, memory] :
           {std::pair{24, 64}, {24, 16}, {2, 64}, {48, 1}, {80, 64}, {0, 24}}) {
        const Problem problem = Large(reading, hot, memory, alike);
        const auto start = std::chrono::steady_clock::now();
        const auto placement = Solve(problem);
        const std::chrono::duration<double, std::milli> ms =
            std::chrono::steady_clock::now() - start;
        std::printf("alike %d, reading %d, hot %2d GiB, RAM %2d GiB: %6.1f ms, ", alike,
                    static_cast<int>(reading), hot, memory, ms.count());
        if (!placement.ok()) {
          std::printf("refused\n");
          continue;
        }
        std::printf("%.3f tokens/s, load %.2f, gap %.1e\n", placement->tokens_per_s(),
                    placement->load_share, placement->gap);
        EXPECT_LT(placement->gap, 2e-4);
        CheckPlacement(problem, *placement);
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::placement
