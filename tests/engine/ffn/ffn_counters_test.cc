// Rows and bytes of decoded tokens, and the judgment of guesses.
#include "engine/ffn/ffn_counters.h"

#include <gtest/gtest.h>

#include "engine/ffn/read_ahead_monitor.h"
#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

constexpr std::int64_t kRow = kHidden / 32 * 34;  // q8_0

TEST(FfnCounters, AddUpRowsAndBytes) {
  SmallNetwork network({.type = kernels::DType::kQ8_0});
  FfnCounters c;
  AddRows(network.context(), 0, {.deciding = 7, .up = 5, .down = 3, .predictor_bytes = 100}, c);
  AddRows(network.context(), 0, {.deciding = 70, .up = 50, .down = 30}, c);
  EXPECT_EQ(c.steps, 2);
  EXPECT_EQ(c.gate_rows, 77);
  EXPECT_EQ(c.up_rows, 55);
  EXPECT_EQ(c.down_rows, 33);
  EXPECT_EQ(c.predictor_bytes, 100);
  EXPECT_EQ(c.bytes, 100 + (77 + 55 + 33) * kRow);
}

TEST(FfnCounters, CountTheDecidingRowsOnceWithoutAGate) {
  SmallNetwork network({.type = kernels::DType::kQ8_0, .gated = false});
  FfnCounters c;
  AddRows(network.context(), 0, {.deciding = 7, .up = 5, .down = 3}, c);
  EXPECT_EQ(c.gate_rows, 7);
  EXPECT_EQ(c.up_rows, 0);
  EXPECT_EQ(c.bytes, (7 + 3) * kRow);
  EXPECT_EQ(DenseBytes(network.config, network.weights.layers[0]),  // up in panels of sixteen rows
            ((kNeurons + 15) / 16 * 16 + kNeurons) * kRow);
}

TEST(FfnCounters, CountAllOfDownsColumns) {
  SmallNetwork network({.down_rows = false});
  FfnCounters c;
  AddRows(network.context(), 0, {.deciding = 7, .up = 5, .down = 3}, c);
  EXPECT_EQ(c.down_rows, kNeurons);
  EXPECT_EQ(c.bytes, (7 + 5) * kHidden * 4 + kHidden * kNeurons * 4);
}

// Asks the monitor `calls` times whether to read ahead, with `fresh` more neurons used before each.
// Returns how often it said yes; advances `uses`.
int Allowed(ReadAheadMonitor& monitor, int calls, std::int64_t fresh, std::int64_t& uses,
            const FlashCounters& counters) {
  int allowed = 0;
  for (int i = 0; i < calls; ++i) allowed += monitor.Pays(uses += fresh, counters) ? 1 : 0;
  return allowed;
}

TEST(ReadAheadMonitor, WantsSomethingToRead) {
  ReadAheadMonitor monitor;
  std::int64_t uses = 0;
  EXPECT_EQ(Allowed(monitor, 1000, 3, uses, {}), 0);
  EXPECT_GT(Allowed(monitor, 100, 20, uses, {}), 90);
  EXPECT_GT(Allowed(monitor, 200, 0, uses, {}), 10);  // the mean decreases slowly
  EXPECT_EQ(Allowed(monitor, 100, 0, uses, {}), 0);
}

TEST(ReadAheadMonitor, GivesUpForAWhileWhatIsMostlyWrong) {
  ReadAheadMonitor monitor;
  std::int64_t uses = 0;
  FlashCounters counters;
  counters.ahead_useful_bytes = 50;
  counters.ahead_wasted_bytes = 49;
  EXPECT_TRUE(monitor.Pays(uses += 1000, counters));
  EXPECT_EQ(Allowed(monitor, 255, 100, uses, counters), 255);  // judged as right
  counters.ahead_useful_bytes += 10;
  counters.ahead_wasted_bytes += 11;
  EXPECT_EQ(Allowed(monitor, 256, 100, uses, counters), 255);  // judged by reads since then
  EXPECT_EQ(Allowed(monitor, ReadAheadMonitor::kSkipped - 1, 100, uses, counters), 0);
  EXPECT_EQ(Allowed(monitor, 256, 100, uses, counters), 256);  // tried again
}

}  // namespace
}  // namespace thermocline::ffn
