// Scalar oracle of the products of chosen rows (kernels/rows.h).
#include "kernels/rows.h"

#include "kernels/layout/row_layout.h"
#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {

void GatherPanel(DType type, const std::uint8_t* const* rows, int num_rows, int cols,
                 std::uint8_t* panel) {
  for (int lane = 0; lane < num_rows; ++lane) LaneFromRow(type, rows[lane], cols, lane, panel);
}

void GemmRows(const GemmRowsParams& p) {
  for (int k = 0; k < p.count; ++k) {
    const std::uint8_t* row = p.weights.row(p.ids != nullptr ? p.ids[k] : p.first + k);
    GatherPanel(p.weights.type, &row, 1, p.weights.cols, p.scratch);
    Gemm({.weights = {p.weights.type, 1, p.weights.cols, p.scratch},
          .activations = p.activations,
          .tokens = p.tokens,
          .out = p.out + k,
          .out_stride = p.out_stride,
          .panel_begin = 0,
          .panel_end = 1});
  }
}

}  // namespace thermocline::kernels::reference
