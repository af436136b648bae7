#include "io/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fa4::cli {
namespace {

constexpr double kLeft = 64, kRight = 24, kTop = 92, kBottom = 56, kPlotHeight = 300;
constexpr const char* kColors[] = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951",
                                   "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"};

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string text_at(double x, double y, const char* anchor, int size, const char* color,
                    const std::string& text) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
      x, y, anchor, size, color, escape(text));
}

// 1, 2 or 5 times a power of ten, so that about five steps reach `largest`.
double nice_step(double largest) {
  const double rough = largest / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Renderer {
 public:
  explicit Renderer(const BarChart& chart) : chart_(chart) {
    double largest = 0;
    for (const auto& series : chart.series) {
      for (const double value : series.values) {
        if (std::isfinite(value)) largest = std::max(largest, value);
      }
    }
    step_ = largest > 0 ? nice_step(largest) : 1;
    top_ = std::max(step_, std::ceil(largest / step_) * step_);
    const double bars = static_cast<double>(chart.series.size());
    bar_ = std::clamp(220.0 / std::max(bars, 1.0), 14.0, 40.0);
    group_ = bars * bar_ + 28;
    plot_width_ = std::max(520.0, group_ * static_cast<double>(chart.groups.size()));
    group_ = plot_width_ / std::max<double>(1, static_cast<double>(chart.groups.size()));
  }

  std::string render() const {
    const double width = kLeft + plot_width_ + kRight;
    const double height = kTop + legend_height() + kPlotHeight + kBottom;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height);
    svg += text_at(kLeft, 30, "start", 18, "#1b1e23", chart_.title);
    svg += text_at(kLeft, 50, "start", 12, "#5b616a", chart_.subtitle);
    svg += legend() + grid() + bars();
    svg += text_at(kLeft + plot_width_ / 2, height - 14, "middle", 12, "#5b616a", chart_.x_label);
    return svg + "</svg>\n";
  }

 private:
  static constexpr double kEntry = 230;
  size_t entries_per_line() const {
    return std::max<size_t>(1, static_cast<size_t>(plot_width_ / kEntry));
  }
  double legend_height() const {
    const size_t lines = (chart_.series.size() + entries_per_line() - 1) / entries_per_line();
    return 18.0 * static_cast<double>(lines);
  }
  double floor() const { return kTop + legend_height() + kPlotHeight; }
  double height_of(double value) const { return kPlotHeight * value / top_; }

  std::string legend() const {
    std::string svg;
    for (size_t i = 0; i < chart_.series.size(); ++i) {
      const double x = kLeft + kEntry * static_cast<double>(i % entries_per_line());
      const double y = 72 + 18.0 * static_cast<double>(i / entries_per_line());
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{}\"/>\n", x,
          y - 10, kColors[i % std::size(kColors)]);
      svg += text_at(x + 17, y, "start", 12, "#1b1e23", chart_.series[i].name);
    }
    return svg;
  }

  std::string grid() const {
    std::string svg;
    for (double value = 0; value <= top_ * 1.0001; value += step_) {
      const double y = floor() - height_of(value);
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", kLeft,
          y, kLeft + plot_width_, y, value == 0 ? "#5b616a" : "#e3e6ea");
      svg += text_at(kLeft - 8, y + 4, "end", 11, "#5b616a", fmt::format("{:g}", value));
    }
    return svg + text_at(kLeft - 8, kTop + legend_height() - 12, "end", 11, "#5b616a", chart_.unit);
  }

  std::string bars() const {
    std::string svg;
    const double used = bar_ * static_cast<double>(chart_.series.size());
    for (size_t g = 0; g < chart_.groups.size(); ++g) {
      const double left = kLeft + group_ * static_cast<double>(g) + (group_ - used) / 2;
      for (size_t s = 0; s < chart_.series.size(); ++s) {
        const double value = chart_.series[s].values[g];
        if (!std::isfinite(value)) continue;
        const double x = left + bar_ * static_cast<double>(s);
        const double height = height_of(value);
        svg += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" "
            "fill=\"{}\"/>\n",
            x + 1, floor() - height, bar_ - 2, height, kColors[s % std::size(kColors)]);
        const std::string label =
            value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
        svg += text_at(x + bar_ / 2, floor() - height - 4, "middle", bar_ < 24 ? 8 : 10, "#1b1e23",
                       label);
      }
      svg += text_at(kLeft + group_ * (static_cast<double>(g) + 0.5), floor() + 18, "middle", 12,
                     "#1b1e23", chart_.groups[g]);
    }
    return svg;
  }

  const BarChart& chart_;
  double step_ = 1, top_ = 1, bar_ = 0, group_ = 0, plot_width_ = 0;
};

}  // namespace

std::string render_svg(const BarChart& chart) { return Renderer(chart).render(); }

}  // namespace fa4::cli
