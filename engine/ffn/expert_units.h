// Experts with the tokens that go through them, and the products of both steps: an expert's
// neurons, then its part of the output. Used by both sides of a shared layer of experts.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/ffn/ffn_context.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

// Maximum tokens multiplied together, and maximum output columns of a work item.
inline constexpr int kTileTokens = 64, kExpertColumns = 512;

// A matrix pair and a down projection with the tokens that go through them.
struct ExpertUnit {
  int expert = -1;  // -1: the shared one
  model::Linear gate, up, down;
  int tokens = 0;                       // n
  const int* ids = nullptr;             // [n] of the step's tokens; null: all, in order
  const float* weight = nullptr;        // [n]
  const float* input_weight = nullptr;  // [n] factors of the inputs, or null
  nn::ActivationBuffer* h = nullptr;
  float* up_out = nullptr;  // [n, neurons]
  int first = 0;            // row of h and of up_out
  bool placed = false;      // from flash: it has arrived in memory
  int hot_row = -1;         // its first row if another side computes it; -1: this side does

  int neurons() const { return up.weight.rows; }
};

// Decode thread, or the thread of its side. Borrows everything; allocates nothing after
// construction.
class ExpertComputer {
 public:
  ExpertComputer(const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates; 0 without experts.
  static std::size_t Bytes(const FfnSizes& sizes);

  // Must be called when the units or the input have changed; drops the gathered tokens.
  void Begin() {
    for (Scratch& scratch : scratch_) scratch.unit = nullptr;
  }
  // One parallel loop over (unit, range of neurons): gate, up, activation, 8-bit form.
  void ComputeNeurons(std::span<ExpertUnit* const> units, const FfnInput& input);
  // Passes the units' inputs to the multiplier's tap.
  void PassToTap(std::span<ExpertUnit* const> units, const FfnInput& input);
  // Calls body(first column, columns, thread) for ranges of the D output columns, in parallel.
  template <typename Body>
  void ForColumns(const Body& body) {
    const int d = context_.config.hidden_size, panels = kernels::NumPanels(d);
    const int per_item = PanelsPerItem(panels, kExpertColumns / kernels::kPanelRows);
    context_.pool.Run((panels + per_item - 1) / per_item, [&](int item, int thread) {
      const int begin = item * per_item * kernels::kPanelRows;
      body(begin, std::min(d - begin, per_item * kernels::kPanelRows), thread);
    });
  }
  // Calls row(i, y) for each of the unit's tokens with y [columns], those columns of its down
  // product, bias added.
  template <typename Row>
  void Down(const ExpertUnit& unit, int column, int columns, int thread, const Row& row) {
    for (int first = 0; first < unit.tokens; first += kTileTokens) {
      const int count = std::min(kTileTokens, unit.tokens - first);
      float* down = MultiplyDown(unit, {first, count}, column, columns, thread);
      for (int i = 0; i < count; ++i) row(first + i, down + nn::Offset(i, columns));
    }
  }

 private:
  // Tokens of a unit that are multiplied together.
  struct Tile {
    int first, count;
  };
  // Buffers of one thread.
  struct Scratch {
    nn::ActivationBuffer tokens;       // [kTileTokens, D] of the current tile
    const ExpertUnit* unit = nullptr;  // the unit of the current tile
    int first = -1;
    std::vector<float> down;  // [kTileTokens, kExpertColumns]
  };

  // Panels of a work item, out of `panels`: pairs, because 32 neurons are an 8-bit block.
  int PanelsPerItem(int panels, int most) const;
  void ComputeRange(const ExpertUnit& unit, const FfnInput& input, int panel_begin, int panel_end,
                    int thread);
  // Copies the activations of a tile to consecutive rows.
  kernels::Activations Gather(const ExpertUnit& unit, const FfnInput& input, Tile tile, int thread);
  void ActivateRange(const ExpertUnit& unit, Tile tile, int row, int rows);
  float* MultiplyDown(const ExpertUnit& unit, Tile tile, int column, int columns, int thread);

  const FfnContext context_;
  std::vector<Scratch> scratch_;  // [threads]
};

}  // namespace thermocline::ffn
