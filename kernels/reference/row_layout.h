// Where the rows of a RowMatrix keep what (kernels/rows.h).
#pragma once

#include "kernels/reference/panel_view.h"
#include "kernels/rows.h"

namespace thermocline::kernels {

struct RowLayout {
  int block;         // columns
  int group_blocks;  // blocks whose scales lie together
  int halves;        // f16 numbers of a block, ahead of its words
  int words;         // of a block
};
// Q4_0 to Q5_K. Q6_K: see GatherQ6K.
inline constexpr RowLayout RowLayoutOf(DType type) {
  const PanelLayout panel = LayoutOf(type);
  const int halves = panel.min >= 0 ? 2 : 1;
  if (Traits(type).block_size == 32) return {32, 8, halves, panel.group_bytes / kQuadBytes};
  return {256, 1, 2, 3 + 8 * panel.group_bytes / kQuadBytes};
}

inline constexpr int kQ6KWords = 48;

// One group of one row: `blocks` blocks.
struct RowGroup {
  std::ptrdiff_t row_offset, panel_offset;  // bytes
  int blocks;
};

// Calls body(RowGroup) for each group of a row.
template <typename Body>
inline void ForRowGroups(DType type, int cols, const Body& body) {
  const RowLayout layout = RowLayoutOf(type);
  const int blocks = cols / layout.block;
  for (int b = 0; b < blocks; b += layout.group_blocks) {
    const int count = blocks - b < layout.group_blocks ? blocks - b : layout.group_blocks;
    body(RowGroup{b * static_cast<std::ptrdiff_t>(Traits(type).block_bytes),
                  b * static_cast<std::ptrdiff_t>(PanelBytes(type, layout.block)), count});
  }
}

}  // namespace thermocline::kernels
