// Places a chart's legend in the corner of the frame with the fewest points.
#pragma once

#include <utility>

#include "engine/charts/frame.h"

namespace thermocline::charts {

// The left and top edges, in pixels, of a box of this size.
std::pair<double, double> LegendCorner(const Chart& chart, const Frame& frame, double width,
                                       double height);

}  // namespace thermocline::charts
