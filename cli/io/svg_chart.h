// A grouped bar chart as one SVG document.
#pragma once

#include <string>
#include <vector>

namespace fa4::cli {

struct BarChart {
  struct Series {
    std::string name;
    std::vector<double> values;  // one a group; NaN: no bar
  };
  std::string title;
  std::string subtitle;
  std::string unit;     // of the values
  std::string x_label;  // what the groups are
  std::vector<std::string> groups;
  std::vector<Series> series;
};

std::string render_svg(const BarChart& chart);

}  // namespace fa4::cli
