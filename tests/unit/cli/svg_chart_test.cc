#include "io/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fa4::cli {
namespace {

size_t count(const std::string& text, const std::string& piece) {
  size_t found = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1))
    ++found;
  return found;
}

TEST(SvgChart, OneBarAValue) {
  BarChart chart;
  chart.title = "a < b & c";
  chart.unit = "TFLOP/s";
  chart.groups = {"1024", "4096", "8192"};
  chart.series = {{"x", {1, 2, std::nan("")}}, {"y", {3, 650.4, 0}}};
  const std::string svg = render_svg(chart);
  EXPECT_EQ(count(svg, "height=\"11\""), 2u);  // the legend
  EXPECT_EQ(count(svg, "rx=\"2\""), 2u + 5u);  // and five bars
  EXPECT_EQ(count(svg, ">650</text>"), 1u);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(SvgChart, NothingToShow) { EXPECT_NE(render_svg({}).find("<svg"), std::string::npos); }

}  // namespace
}  // namespace fa4::cli
