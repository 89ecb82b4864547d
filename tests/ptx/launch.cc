#include "tests/ptx/launch.h"

#include <algorithm>
#include <memory>
#include <random>

#include "tests/ptx/warp.h"

namespace ptx {
namespace {

constexpr std::size_t kAliveMax = 3;  // concurrent blocks
constexpr int kStepsMax = 400;        // per turn of a warp

std::vector<std::uint8_t> Arguments(const LaunchParams& params) {
  const Kernel& kernel = params.kernel;
  if (params.arguments.size() != kernel.params.size())
    throw Finding(params.where + ": " + std::to_string(params.arguments.size()) +
                  " arguments for " + std::to_string(kernel.params.size()) + " parameters");
  std::vector<std::uint8_t> out(kernel.param_bytes);
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    if (params.arguments[i].size() != kernel.params[i])
      throw Finding(params.where + ": argument " + std::to_string(i) + " has another size");
    std::copy(params.arguments[i].begin(), params.arguments[i].end(),
              out.begin() + kernel.param_at[i]);
  }
  return out;
}

// One block's warps.
struct Alive {
  Block block;
  std::vector<std::unique_ptr<Warp>> warps;

  Alive(Grid& grid, std::uint32_t index)
      : block{grid,
              index,
              std::vector<std::uint8_t>(grid.shared_bytes, 0xEE),
              std::vector<std::uint8_t>(grid.shared_bytes, 0),
              Races(grid.block_threads()),
              std::vector<std::uint16_t>(RoundUp(grid.block_threads()))} {
    const std::uint32_t threads = grid.block_threads();
    for (std::uint32_t first = 0; first < threads; first += 32)
      warps.push_back(std::make_unique<Warp>(block, first / 32, std::min(32U, threads - first)));
  }
  static std::size_t RoundUp(std::uint32_t threads) { return (threads + 31) / 32 * 32; }

  bool ended() const {
    return std::all_of(warps.begin(), warps.end(),
                       [](const auto& warp) { return warp->state() == Warp::State::kEnded; });
  }
  // Releases the barrier if all warps that have not ended wait at it.
  void Release() {
    bool waits = false;
    for (const auto& warp : warps) {
      if (warp->state() == Warp::State::kRuns) return;
      waits = waits || warp->state() == Warp::State::kAtBarrier;
    }
    if (!waits) return;
    ++block.barriers;
    for (const auto& warp : warps)
      if (warp->state() == Warp::State::kAtBarrier) warp->LeaveBarrier();
  }
};

}  // namespace

void Launch(const LaunchParams& params, const Allocations& memory) {
  const std::vector<std::uint8_t> arguments = Arguments(params);
  const auto& [bx, by, bz] = params.blocks;
  const auto& [tx, ty, tz] = params.threads;
  Grid grid{params.kernel,
            {bx, by, bz},
            {tx, ty, tz},
            arguments,
            memory,
            Races(tx * ty * tz),
            params.where + ", " + params.kernel.name};
  grid.dynamic_shared = (params.kernel.shared_bytes + 15) / 16 * 16;
  grid.shared_bytes = grid.dynamic_shared + params.dynamic_shared_bytes;

  std::mt19937_64 random(params.seed);
  std::vector<std::uint32_t> order(bx * by * bz);
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<Alive>> alive;
  std::size_t next = 0;
  while (next < order.size() || !alive.empty()) {
    while (alive.size() < kAliveMax && next < order.size())
      alive.push_back(std::make_unique<Alive>(grid, order[next++]));
    const std::size_t at = random() % alive.size();
    Alive& block = *alive[at];
    Warp& warp = *block.warps[random() % block.warps.size()];
    if (warp.state() == Warp::State::kRuns) warp.Run(1 + static_cast<int>(random() % kStepsMax));
    block.Release();
    if (block.ended()) alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace ptx
