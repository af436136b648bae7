#include "with_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace fa4::cli {
namespace {

using Names = std::vector<std::string_view>;

// What a message begins with, and the options that it may be from. Of those that the command has,
// the first that was given is named: a size that was not given follows its partner.
struct Named {
  std::string_view argument;
  Names options;
};

const Names kSeqlenQ = {"--seqlen-q", "--seqlen", "--q"};
const Names kSeqlenK = {"--seqlen-k", "--seqlen-q", "--seqlen", "--page-table", "--k"};
const Names kHeadDimV = {"--head-dim-v", "--head-dim", "--v"};

// A GPU takes strides of whole 16 bytes up to 2^40. The head dimension makes them whole, and only
// the distance of two sequences, or pages, of many rows is too long.
Names options_of_stride(std::string_view message) {
  const size_t of = message.find(" of "), is = message.find(" is ");
  if (of == std::string_view::npos || is == std::string_view::npos || is < of) return {};
  const std::string_view tensor = message.substr(of + 4, is - of - 4);
  const bool of_keys = tensor.ends_with('k') || tensor.ends_with('v');
  const bool of_values = tensor.ends_with('v') || tensor.ends_with("out");
  int64_t bytes = 0;
  std::from_chars(message.data() + is + 4, message.data() + message.size(), bytes);
  if (bytes % 16 != 0) {
    return of_values ? kHeadDimV : Names{"--head-dim", of_keys ? "--k" : "--q"};
  }
  if (!of_keys) return kSeqlenQ;
  Names rows = kSeqlenK;
  rows.insert(rows.begin(), "--page-size");
  return rows;
}

Named named_by(std::string_view message) {
  static const Named kNamed[] = {{"head_dim_v ", kHeadDimV},
                                 {"head_dim ", {"--head-dim", "--q"}},
                                 {"seqlen_q ", kSeqlenQ},
                                 {"seqlen_k ", kSeqlenK},
                                 {"total_q ", {"--total-q", "--q"}},
                                 {"total_k ", {"--k"}},
                                 {"num_pages ", {"--page-size", "--k"}},
                                 {"softcap ", {"--softcap"}},
                                 {"softmax_scale ", {"--scale"}},
                                 {"out_dtype ", {"--out-dtype"}},
                                 {"kv_dtype ", {"--kv-dtype"}},
                                 {"dtype ", {"--dtype", "--q"}},
                                 {"descale_block ", {"--descale-block"}},
                                 {"num_splits ", {"--num-splits"}},
                                 {"split_keys ", {"--split-keys"}},
                                 {"window_", {"--window"}},
                                 {"layout_kv ", {"--page-size", "--page-table"}}};
  for (const std::string_view side : {"batch", "seqlen", "head"}) {
    if (message.starts_with(fmt::format("{} stride ", side))) {
      return {"", options_of_stride(message)};
    }
  }
  for (const Named& named : kNamed) {
    if (message.starts_with(named.argument)) return named;
  }
  // Only many sequences make a tensor too large: one alone has too few rows, heads and columns.
  const bool too_large = message.find(" elements is too large;") != std::string_view::npos;
  if (too_large || message.starts_with("batch ")) {
    return {"batch ", {"--batch", "--tokens", "--cu-seqlens-q", "--q"}};
  }
  if (!message.starts_with("num_heads ")) return {};
  const bool of_q = message.find(" of q;") < message.find(" of k");
  return {"", {of_q ? "--heads-q" : "--heads-kv"}};
}

const Option* option_of(const Names& names, const Options& options) {
  const Option* first = nullptr;
  for (const std::string_view name : names) {
    const auto found = std::find_if(options.all().begin(), options.all().end(),
                                    [&](const Option& option) { return option.name() == name; });
    if (found == options.all().end()) continue;
    if (found->text()) return &*found;
    if (first == nullptr) first = &*found;
  }
  return first;
}

}  // namespace

std::string with_option(const std::string& message, const Options& options) {
  const Named named = named_by(message);
  const Option* option = option_of(named.options, options);
  if (option == nullptr) return message;
  const std::optional<std::string> text = option->text();
  if (!text) return fmt::format("{}: {}", option->name(), message);
  if (!named.argument.empty() && message.starts_with(named.argument)) {
    const std::string rest = message.substr(named.argument.size());  // begins with the value
    if (rest.substr(0, rest.find_first_of(" ,;")) == *text) {
      return fmt::format("{} {}", option->name(), rest);
    }
  }
  return fmt::format("{} {}: {}", option->name(), *text, message);
}

}  // namespace fa4::cli
