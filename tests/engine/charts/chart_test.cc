#include "engine/charts/chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/charts/escape.h"
#include "engine/charts/frame.h"
#include "engine/charts/legend.h"

namespace thermocline::charts {
namespace {

using Kind = Series::Kind;
using Points = std::vector<std::pair<double, double>>;

TEST(EscapeTest, TextIsEscaped) {
  EXPECT_EQ(EscapeMarkup("<script a=\"b\" c='d'>&"),
            "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;");
  EXPECT_EQ(EscapeMarkup(std::string("a\0\x1b"
                                     "b\xFF",
                                     5)),
            "a  b\xEF\xBF\xBD");
}

TEST(ChartTest, OddPointsAreDrawn) {
  const double nan = std::nan(""), inf = INFINITY;
  for (const Points& points : std::vector<Points>{{},
                                                  {{1, 1}},
                                                  {{0, 0}, {0, 0}},
                                                  {{nan, 1}, {1, inf}},
                                                  {{1, -5}, {2, 1e300}},
                                                  {{-1, -1}}}) {
    for (const Kind kind : {Kind::kLine, Kind::kPoints, Kind::kDots, Kind::kBars}) {
      for (const bool log : {false, true}) {
        const Chart chart{.title = "<b>",
                          .y = {.log = log},
                          .series = {{.kind = kind, .label = "x", .points = points}}};
        for (const std::string& svg :
             {RenderInline(chart, 300), RenderPicture(std::vector{chart}, 1)}) {
          EXPECT_EQ(svg.find("nan"), std::string::npos);
          EXPECT_EQ(svg.find("inf"), std::string::npos);
          EXPECT_EQ(svg.find("<b>"), std::string::npos);
        }
      }
    }
  }
}

TEST(ChartTest, AChartWithoutPointsSaysSo) {
  Chart chart{.y = {.log = true}, .series = {{.points = {{1, 0}}}}};
  EXPECT_NE(RenderInline(chart, 300).find("nothing was measured"), std::string::npos);
  chart.series[0].points.emplace_back(2, 3);
  EXPECT_EQ(RenderInline(chart, 300).find("nothing was measured"), std::string::npos);
}

TEST(ScaleTest, TicksAreFewWhereAnAxisBeginsFarBelowItsPoints) {
  const Axis axis{.min = 0};
  const Scale scale(axis, 5.9, 6);
  EXPECT_GE(scale.ticks().size(), 4u);
  EXPECT_LE(scale.ticks().size(), 9u);
  EXPECT_EQ(scale.ticks().front().text, "0");
  EXPECT_EQ(scale.ticks().back().text, "6");
}

TEST(ScaleTest, PowersOfTenAreTheTicksOfALogarithmicAxis) {
  const Axis axis{.log = true, .percent = true};
  const Scale scale(axis, 0.02, 1);
  ASSERT_EQ(scale.ticks().size(), 3u);
  EXPECT_EQ(scale.ticks()[0].text, "1 %");
  EXPECT_EQ(scale.ticks()[2].text, "100 %");
  EXPECT_DOUBLE_EQ(scale.At(0.1), 0.5);
  EXPECT_FALSE(scale.Has(0));
}

TEST(LegendTest, TheLegendStandsWhereNoPointsAre) {
  // Points in all corners of the frame but one.
  const Points corners = {{1, 1}, {1, 9}, {9, 1}, {9, 9}};
  for (std::size_t free = 0; free < corners.size(); ++free) {
    Chart chart{.x = {.min = 0, .max = 10}, .y = {.min = 0, .max = 10}};
    Points& points = chart.series.emplace_back(Series{.kind = Kind::kDots}).points;
    for (std::size_t i = 0; i < corners.size(); ++i) {
      if (i != free) points.push_back(corners[i]);
    }
    const Frame frame(chart, 400);
    const auto [left, top] = LegendCorner(chart, frame, 80, 40);
    const auto [x, y] = corners[free];
    EXPECT_EQ(left < Frame::kLeft + Frame::kWidth / 2, x == 1) << free;
    EXPECT_EQ(top > Frame::kTop + frame.height() / 2, y == 1) << free;
  }
}

}  // namespace
}  // namespace thermocline::charts
