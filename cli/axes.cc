#include "axes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/rounding.h"
#include "failure.h"
#include "parse.h"
#include "verify/cases.h"

namespace fa4::cli {

using namespace fa4::internal;

void declare_mask(Options& app, bool& causal, std::vector<std::string>& window,
                  std::optional<std::string>& window_bounds) {
  app.add_flag("--causal", causal, "Hide the keys after each query");
  app.add_option("--window", window, "Keys seen left and right of each query, -1: all")
      ->expected(2)
      ->type_name("L R");
  app.add_option("--window-bounds", window_bounds,
                 "A negative L (1), R (2) or both (3) of --window are bounds")
      ->type_name("N");
}

void declare_splits(Options& app, std::optional<std::string>& num_splits,
                    std::optional<std::string>& split_keys) {
  app.add_option("--num-splits", num_splits,
                 "Most parts that keys are cut into; 0 (default): the plan decides, 1: none")
      ->type_name("N");
  app.add_option("--split-keys", split_keys, "Keys are cut at multiples of N, itself one of 128")
      ->type_name("N");
}

void Axes::declare(Options& app) {
  app.add_option("--batch", batch_, "Sequences (default 1)")->type_name("N");
  app.add_option("--heads-q", heads_q_, "Query heads (default 8)")->type_name("N");
  app.add_option("--heads-kv", heads_kv_, "Key heads (default heads-q)")->type_name("N");
  app.add_option("--seqlen-q", seqlen_q_, "Queries a sequence (default 1024)")->type_name("N");
  app.add_option("--seqlen-k", seqlen_k_, "Keys a sequence (default seqlen-q)")->type_name("N");
  app.add_option("--head-dim", head_dim_, "Of q and k: multiples of 8 to 256 (default 128)")
      ->type_name("N");
  app.add_option("--head-dim-v", head_dim_v_, "Of v and out (default head-dim)")->type_name("N");
  app.add_option("--dtype", dtype_, "bf16 (default), f16, f32")->type_name("T");
  app.add_option("--kv-dtype", kv_dtype_, "Of k and v: e4m3, or dtype (default)")->type_name("T");
  app.add_option("--descale-block", descale_block_,
                 "e4m3: keys that share a descale, 0 (all, default) or 128")
      ->type_name("N");
  app.add_option("--out-dtype", out_dtype_, "Of out: f32, or dtype (default)")->type_name("T");
  declare_mask(app, causal_, window_, window_bounds_);
  app.add_option("--softcap", softcap_, "Scores become C tanh(score / C); 0: off")->type_name("C");
  app.add_option("--scale", scale_, "Of the scores (default 1/sqrt(head-dim))")->type_name("S");
  declare_splits(app, num_splits_, split_keys_);
  app.add_option("--sm-margin", sm_margin_, "SMs of a GPU that are left to other work (default 0)")
      ->type_name("N");
}

void check_splits(Direction direction, const ProblemDesc& desc) {
  if (direction == Direction::kForward) return;
  const auto check = [](const char* option, int64_t value) {
    if (value == 0) return;
    throw bad_input(
        fmt::format("{} {}: a backward cuts no keys; accepted: 0, or a forward", option, value));
  };
  check("--num-splits", desc.num_splits);
  check("--split-keys", desc.split_keys);
}

void put_on_pages(ProblemDesc& d, int64_t page_size) {
  d.layout_kv = Layout::kPaged;
  d.page_size = page_size;
  d.pages_per_seq = ceil_div(d.seqlen_k, page_size);
  d.num_pages = d.batch * d.pages_per_seq;
}

bool Axes::any_given() const {
  for (const auto* text :
       {&batch_, &heads_q_, &heads_kv_, &seqlen_q_, &seqlen_k_, &head_dim_, &head_dim_v_, &dtype_,
        &kv_dtype_, &descale_block_, &out_dtype_, &softcap_, &scale_, &window_bounds_, &num_splits_,
        &split_keys_, &sm_margin_}) {
    if (text->has_value()) return true;
  }
  return causal_ || !window_.empty();
}

int64_t Axes::size(const char* option, const std::optional<std::string>& text,
                   int64_t fallback) const {
  return text ? parse_int(option, *text, 0, INT32_MAX) : fallback;
}

ProblemDesc Axes::desc() const {
  ProblemDesc d;
  d.batch = size("--batch", batch_, 1);
  d.heads_q = heads_q_ ? parse_int("--heads-q", *heads_q_, 1, kMaxHeads) : 8;
  d.heads_kv = heads_kv_ ? parse_int("--heads-kv", *heads_kv_, 1, kMaxHeads) : d.heads_q;
  d.seqlen_q = size("--seqlen-q", seqlen_q_, 1024);
  d.seqlen_k = size("--seqlen-k", seqlen_k_, d.seqlen_q);
  d.head_dim = head_dim_ ? parse_head_dim("--head-dim", *head_dim_) : 128;
  d.head_dim_v = head_dim_v_ ? parse_head_dim("--head-dim-v", *head_dim_v_) : d.head_dim;
  d.dtype = dtype_ ? parse_dtype("--dtype", *dtype_) : DType::kBF16;
  if (kv_dtype_) d.kv_dtype = parse_kv_dtype("--kv-dtype", *kv_dtype_);
  if (d.kv_dtype == DType::kE4M3) {
    quantise(d, size("--descale-block", descale_block_, 0), Descales::kContiguous);
  } else if (descale_block_) {
    throw bad_input(
        fmt::format("--descale-block {}; accepted: with --kv-dtype e4m3", *descale_block_));
  }
  if (out_dtype_) d.out_dtype = parse_dtype("--out-dtype", *out_dtype_);
  d.causal = causal_;
  d.window = parse_window("--window", window_, window_bounds_);
  if (softcap_) d.softcap = parse_float("--softcap", *softcap_);
  d.num_splits = size("--num-splits", num_splits_, 0);
  d.split_keys = size("--split-keys", split_keys_, 0);
  d.sm_margin = size("--sm-margin", sm_margin_, 0);
  if (scale_) d.softmax_scale = parse_float("--scale", *scale_);
  return d;
}

namespace {

// Options say types by name; the library's own message has its numbers of them.
void check_type(std::string_view option, DType given, DType dtype, DType other) {
  if (given == DType{} || given == dtype || given == other) return;
  throw bad_input(fmt::format("{} {}; accepted: {} (that of q){}", option, name_of(given),
                              name_of(dtype),
                              other == dtype ? "" : fmt::format(", {}", name_of(other))));
}

}  // namespace

AttentionProblem make_problem(const ProblemDesc& desc) {
  check_type("--kv-dtype", desc.kv_dtype, desc.dtype, DType::kE4M3);
  check_type("--out-dtype", desc.out_dtype, desc.dtype, DType::kF32);
  return AttentionProblem::make(desc);
}

Json axes_json(const AttentionProblem& p) {
  Json json;
  json["batch"] = p.batch;
  json["heads_q"] = p.heads_q;
  json["heads_kv"] = p.heads_kv;
  json["seqlen_q"] = p.seqlen_q;
  json["seqlen_k"] = p.seqlen_k;
  json["head_dim"] = p.head_dim;
  json["head_dim_v"] = p.head_dim_v;
  json["dtype"] = name_of(p.dtype);
  if (p.kv_dtype != p.dtype) json["kv_dtype"] = name_of(p.kv_dtype);
  if (p.has_descales) json["descale_block"] = p.descale_block;
  if (p.out_dtype != p.dtype) json["out_dtype"] = name_of(p.out_dtype);
  json["causal"] = p.causal;
  json["window"] = {p.window.window_left, p.window.window_right};
  if (p.window.window_bounds != 0) json["window_bounds"] = p.window.window_bounds;
  json["softcap"] = p.softcap;
  json["scale"] = p.scale;
  json["num_splits"] = p.num_splits;
  json["split_keys"] = p.split_keys;
  if (p.sm_margin > 0) json["sm_margin"] = p.sm_margin;
  if (p.layout_q == Layout::kPacked) json["total_q"] = p.total_q;
  if (p.layout_kv == Layout::kPacked) json["total_k"] = p.total_k;
  if (p.layout_kv == Layout::kPaged) json["page_size"] = p.page_size;
  if (p.page_table_heads > 1) json["page_table_heads"] = p.page_table_heads;
  if (p.prefix_len > 0) json["prefix_len"] = p.prefix_len;
  json["seqused_q"] = p.has_seqused_q;
  json["seqused_k"] = p.has_seqused_k;
  json["sink"] = p.has_sink;
  if (p.has_sink && p.sink_dtype != DType::kF32) json["sink_dtype"] = name_of(p.sink_dtype);
  if (p.deterministic) json["deterministic"] = true;
  if (p.has_dlse) json["dlse"] = true;
  if (p.grad_dtype != p.dtype) json["grad_dtype"] = name_of(p.grad_dtype);
  return json;
}

std::string axes_text(const AttentionProblem& p) {
  std::string text =
      fmt::format("{} batch {} heads {}:{} seqlen {}x{} head_dim {},{}", name_of(p.dtype), p.batch,
                  p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, p.head_dim_v);
  if (p.causal) text += " causal";
  if (!p.window.is_full()) {
    text += fmt::format(" window {} {}", p.window.window_left, p.window.window_right);
    if (p.window.window_bounds != 0) text += fmt::format(" bounds {}", p.window.window_bounds);
  }
  if (p.softcap != 0) text += fmt::format(" softcap {}", p.softcap);
  if (p.layout_q == Layout::kPacked) text += fmt::format(" packed q {}", p.total_q);
  if (p.layout_kv == Layout::kPacked) text += fmt::format(" packed k {}", p.total_k);
  if (p.layout_kv == Layout::kPaged) text += fmt::format(" pages of {}", p.page_size);
  if (p.page_table_heads > 1) text += " of each head";
  if (p.prefix_len > 0) text += fmt::format(" behind {} shared keys", p.prefix_len);
  if (p.has_seqused_q) text += " seqused_q";
  if (p.has_seqused_k) text += " seqused_k";
  if (p.has_sink) text += " sink";
  if (p.has_sink && p.sink_dtype != DType::kF32) text += fmt::format(" {}", name_of(p.sink_dtype));
  if (p.num_splits != 0) text += fmt::format(" at most {} splits", p.num_splits);
  if (p.split_keys != 0) text += fmt::format(" splits of {}", p.split_keys);
  if (p.sm_margin != 0) text += fmt::format(" sm_margin {}", p.sm_margin);
  if (p.kv_dtype != p.dtype) text += fmt::format(" k and v {}", name_of(p.kv_dtype));
  if (p.has_descales) text += fmt::format(" descale_block {}", p.descale_block);
  if (p.out_dtype != p.dtype) text += fmt::format(" out {}", name_of(p.out_dtype));
  if (p.has_dlse) text += " dlse";
  return text;
}

}  // namespace fa4::cli
