// The layout of the rows of a RowMatrix (kernels/rows.h).
#pragma once

#include "kernels/layout/panel_view.h"
#include "kernels/rows.h"

namespace thermocline::kernels {

struct RowLayout {
  int block;         // columns
  int group_blocks;  // blocks whose scales lie together
  int numbers;       // scales and mins of a block, stored ahead of its words
  int number_bytes;  // bytes of each: 2; 1 for MXFP4
  int words;         // words of a block

  // The bytes of the numbers in a panel's block.
  constexpr int panel_header() const { return numbers * number_bytes * kPanelRows; }
};
// Q6_K: see GatherQ6K.
inline constexpr RowLayout RowLayoutOf(DType type) {
  const PanelLayout panel = LayoutOf(type);
  if (type == DType::kMXFP4) return {32, 8, 1, 1, panel.group_bytes / kQuadBytes};
  const int numbers = panel.min >= 0 || type == DType::kIQ4_XS ? 2 : 1;
  if (!IsBlockOf256(type)) return {32, 8, numbers, 2, panel.group_bytes / kQuadBytes};
  const int header_words = (panel.header - numbers * 2 * kPanelRows) / kQuadBytes;
  return {256, 1, numbers, 2, header_words + 8 * panel.group_bytes / kQuadBytes};
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
    body(RowGroup{StartOf(b, Traits(type).block_bytes), StartOf(b, PanelBytes(type, layout.block)),
                  count});
  }
}

// Copies a row of a RowMatrix to lane `lane` of a panel.
void LaneFromRow(DType type, const std::uint8_t* row, int cols, int lane, std::uint8_t* panel);

}  // namespace thermocline::kernels
