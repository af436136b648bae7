#include "run_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "axes.h"
#include "core/rounding.h"
#include "failure.h"
#include "io/convert.h"
#include "parse.h"
#include "problem/tensor_extent.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

using Shape = std::vector<int64_t>;

template <class... Values>
[[noreturn]] void refuse(const char* option, const std::string& file,
                         fmt::format_string<Values...> format, Values&&... values) {
  throw bad_input(
      fmt::format("{} {}: {}", option, file, fmt::format(format, std::forward<Values>(values)...)));
}

FileTensor read(const char* option, const std::string& file, Holds holds = Holds::kNumbers) {
  return naming(option, file, [&] { return read_tensor(file, holds); });
}

std::vector<int32_t> read_indices(const char* option, const std::string& file, size_t rank) {
  const FileTensor tensor = read(option, file, Holds::kIndices);
  if (tensor.shape.size() != rank) {
    refuse(option, file, "shape {}; accepted: {} dimension{}", shape_text(tensor.shape), rank,
           rank == 1 ? "" : "s");
  }
  return naming(option, file, [&] { return as_indices(tensor); });
}

// Starts at 0, never descends, ends at the tensor's rows. Returns the longest sequence.
int64_t check_cu_seqlens(const char* option, const std::string& file,
                         const std::vector<int32_t>& cu_seqlens, int64_t total, const char* of) {
  if (cu_seqlens.empty()) refuse(option, file, "is empty; accepted: batch + 1 numbers from 0");
  if (cu_seqlens[0] != 0) refuse(option, file, "entry 0 is {}; accepted: 0", cu_seqlens[0]);
  int64_t longest = 0;
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    if (cu_seqlens[i] < cu_seqlens[i - 1] || cu_seqlens[i] > total) {
      refuse(option, file, "entry {} is {}; accepted: {} (the entry before) to {} (rows of {})", i,
             cu_seqlens[i], cu_seqlens[i - 1], total, of);
    }
    longest = std::max<int64_t>(longest, cu_seqlens[i] - cu_seqlens[i - 1]);
  }
  if (cu_seqlens.back() != total) {
    refuse(option, file, "the last entry is {}; accepted: {}, the rows of {}", cu_seqlens.back(),
           total, of);
  }
  return longest;
}

}  // namespace

struct RunInputs::Shapes {
  Shape q, k, v;
  int64_t heads(const Shape& s) const { return s[s.size() - 2]; }
  int64_t dim(const Shape& s) const { return s.back(); }
};

namespace {

void check_rank(const char* option, const std::string& file, const Shape& shape, bool packed,
                const char* packed_by) {
  const size_t rank = packed ? 3 : 4;
  if (shape.size() == rank) return;
  if (packed) {
    refuse(option, file, "shape {}; accepted: (total, heads, dim) with {}", shape_text(shape),
           packed_by);
  }
  refuse(option, file,
         "shape {}; accepted: (batch, seqlen, heads, dim), or (total, heads, dim) with {}",
         shape_text(shape), packed_by);
}

void check_head_dim(const char* option, const std::string& file, int64_t dim) {
  if (!is_head_dim(dim)) {
    refuse(option, file, "head_dim {}; accepted: multiples of 8 from 8 to 256", dim);
  }
}

// Of a tensor without elements a file may say any shape.
void check_sizes(const char* option, const std::string& file, const Shape& shape) {
  for (size_t i = 0; i + 2 < shape.size(); ++i) {
    if (shape[i] <= INT32_MAX) continue;
    refuse(option, file, "shape {}: dimension {} is {}; accepted: at most {}", shape_text(shape), i,
           shape[i], INT32_MAX);
  }
}

// k against q and v against k: everything that does not need the index tensors.
template <class Shapes>
void check_shapes(const RunFiles& files, const Shapes& s) {
  const int64_t heads_q = s.heads(s.q), heads_kv = s.heads(s.k);
  check_sizes("--q", files.q, s.q);
  check_sizes("--k", files.k, s.k);
  if (heads_q < 1 || heads_q > kMaxHeads) {
    refuse("--q", files.q, "num_heads {}; accepted: 1 to {}", heads_q, kMaxHeads);
  }
  if (heads_kv < 1 || heads_q % heads_kv != 0) {
    refuse("--k", files.k, "num_heads {} does not divide num_heads_q {}; accepted: {}", heads_kv,
           heads_q, divisors_of(heads_q));
  }
  if (s.heads(s.v) != heads_kv) {
    refuse("--v", files.v, "num_heads {} is not that of k; accepted: {}", s.heads(s.v), heads_kv);
  }
  check_head_dim("--q", files.q, s.dim(s.q));
  if (s.dim(s.k) != s.dim(s.q)) {
    refuse("--k", files.k, "head_dim {} is not that of q; accepted: {}", s.dim(s.k), s.dim(s.q));
  }
  check_head_dim("--v", files.v, s.dim(s.v));
  for (size_t i = 0; i + 2 < s.k.size(); ++i) {
    if (s.v[i] != s.k[i]) {
      refuse("--v", files.v,
             "shape {} does not go with shape {} of k; accepted: the same but the "
             "last dimension",
             shape_text(s.v), shape_text(s.k));
    }
  }
}

// k and v are bytes exactly when the user says so.
void check_quantised(const char* option, const std::string& file, const FileTensor& tensor) {
  if (tensor.type == FileType::kBits8) return;
  refuse(option, file, "has dtype {}; accepted with --kv-dtype e4m3: u1 (.npy), U8, F8_E4M3",
         name_of(tensor.type));
}

// The type of q, and of k and v unless they are quantised.
DType common_type(const RunFiles& files, const FileTensor& q, const FileTensor& k,
                  const FileTensor& v, const RunOptions& options) {
  const std::optional<DType> asked = options.dtype;
  const auto type_of = [&](const char* option, const std::string& file, const FileTensor& tensor) {
    return naming(option, file, [&] { return element_type(tensor, asked); });
  };
  const DType dtype = type_of("--q", files.q, q);
  const auto check = [&](const char* option, const std::string& file, DType other) {
    if (other != dtype) {
      refuse(option, file, "dtype {} is not that of q; accepted: {}, or --dtype for all",
             name_of(other), name_of(dtype));
    }
  };
  if (options.kv_dtype == DType::kE4M3) {
    check_quantised("--k", files.k, k);
    check_quantised("--v", files.v, v);
    return dtype;
  }
  check("--k", files.k, type_of("--k", files.k, k));
  check("--v", files.v, type_of("--v", files.v, v));
  return dtype;
}

}  // namespace

void RunInputs::set_packed_q(const RunFiles& files, const Shapes& s, ProblemDesc& d) {
  const std::string& file = *files.cu_seqlens_q;
  cu_seqlens_q_ = read_indices("--cu-seqlens-q", file, 1);
  d.layout_q = Layout::kPacked;
  d.total_q = s.q[0];
  d.seqlen_q = check_cu_seqlens("--cu-seqlens-q", file, cu_seqlens_q_, d.total_q, "q");
  d.batch = static_cast<int64_t>(cu_seqlens_q_.size()) - 1;
}

void RunInputs::set_packed_k(const RunFiles& files, const Shapes& s, ProblemDesc& d) {
  const bool own = files.cu_seqlens_k.has_value();
  const char* option = own ? "--cu-seqlens-k" : "--cu-seqlens-q";
  const std::string& file = own ? *files.cu_seqlens_k : *files.cu_seqlens_q;
  cu_seqlens_k_ = own ? read_indices(option, file, 1) : cu_seqlens_q_;
  if (cu_seqlens_k_.size() != static_cast<size_t>(d.batch) + 1) {
    refuse(option, file, "{} entries; accepted: {}, one more than the sequences of q",
           cu_seqlens_k_.size(), d.batch + 1);
  }
  d.layout_kv = Layout::kPacked;
  d.total_k = s.k[0];
  if (!own && cu_seqlens_k_.back() != d.total_k) {
    throw bad_input(fmt::format(
        "--cu-seqlens-k: is missing, and --cu-seqlens-q {} ends at {}, which are not the "
        "{} rows of k; accepted: --cu-seqlens-k FILE whose last entry is {}",
        file, cu_seqlens_k_.back(), d.total_k, d.total_k));
  }
  d.seqlen_k = check_cu_seqlens(option, file, cu_seqlens_k_, d.total_k, "k");
}

std::vector<int64_t> RunInputs::set_pages(const RunFiles& files, const Shapes& s, ProblemDesc& d) {
  const std::string& file = *files.page_table;
  const FileTensor table = read("--page-table", file, Holds::kIndices);
  const bool of_heads = table.shape.size() == 3;
  if ((table.shape.size() != 2 && !of_heads) || table.shape[0] != d.batch ||
      (of_heads && table.shape[1] != s.k[2])) {
    refuse("--page-table", file,
           "shape {}; accepted: (batch {}, pages per sequence), or (batch {}, heads_kv {}, pages "
           "per sequence)",
           shape_text(table.shape), d.batch, d.batch, s.k[2]);
  }
  if (of_heads) d.page_table_heads = table.shape[1];
  std::vector<int64_t> entries = naming("--page-table", file, [&] { return as_integers(table); });
  d.layout_kv = Layout::kPaged;
  d.num_pages = s.k[0];
  d.page_size = s.k[1];
  d.pages_per_seq = table.shape.back();
  d.has_seqused_k = true;
  if (d.page_size < 1) refuse("--k", files.k, "page_size 0; accepted: 1 or more");
  if (d.pages_per_seq > INT32_MAX / d.page_size) {
    refuse("--page-table", file, "shape {}: {} pages of {} keys; accepted: at most {} keys",
           shape_text(table.shape), d.pages_per_seq, d.page_size, INT32_MAX);
  }
  d.seqlen_k = d.pages_per_seq * d.page_size;
  return entries;
}

// `cu_seqlens`: empty when each sequence has `seqlen` rows.
std::vector<int32_t> RunInputs::read_seqused(const char* option, const std::string& file,
                                             int64_t batch, int64_t seqlen,
                                             const std::vector<int32_t>& cu_seqlens) const {
  std::vector<int32_t> used = read_indices(option, file, 1);
  if (static_cast<int64_t>(used.size()) != batch) {
    refuse(option, file, "{} entries; accepted: {}, one a sequence", used.size(), batch);
  }
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t most = cu_seqlens.empty() ? seqlen : cu_seqlens[b + 1] - cu_seqlens[b];
    if (used[b] < 0 || used[b] > most) {
      refuse(option, file, "entry {} is {}; accepted: 0 to {}", b, used[b], most);
    }
  }
  return used;
}

void RunInputs::set_seqused(const RunFiles& files, ProblemDesc& d) {
  if (files.seqused_q) {
    seqused_q_ = read_seqused("--seqused-q", *files.seqused_q, d.batch, d.seqlen_q, cu_seqlens_q_);
    d.has_seqused_q = true;
  }
  if (files.seqused_k) {
    seqused_k_ = read_seqused("--seqused-k", *files.seqused_k, d.batch, d.seqlen_k, cu_seqlens_k_);
    d.has_seqused_k = true;
  } else if (d.layout_kv == Layout::kPaged) {
    seqused_k_.assign(static_cast<size_t>(d.batch), static_cast<int32_t>(d.seqlen_k));
  }
}

// Behind the last key of a sequence an entry may be any number of its file's type, and becomes the
// nearest of 32 bits.
void RunInputs::set_page_table(const RunFiles& files, const std::vector<int64_t>& entries,
                               const ProblemDesc& d) {
  const int64_t heads = std::max<int64_t>(1, d.page_table_heads);
  for (int64_t row = 0; row < d.batch * heads; ++row) {
    const int64_t used = ceil_div(seqused_k_[row / heads], d.page_size);
    for (int64_t i = 0; i < used; ++i) {
      const int64_t page = entries[row * d.pages_per_seq + i];
      if (page >= 0 && page < d.num_pages) continue;
      if (d.num_pages == 0) {
        refuse("--k", files.k,
               "0 pages; accepted: 1 or more, as sequence {} of --page-table uses {}", row / heads,
               used);
      }
      const std::string head = heads > 1 ? fmt::format("{}, ", row % heads) : "";
      refuse("--page-table", *files.page_table, "entry ({}, {}{}) is {}; accepted: 0 to {}",
             row / heads, head, i, page, d.num_pages - 1);
    }
  }
  page_table_.reserve(entries.size());
  for (const int64_t page : entries) {
    page_table_.push_back(static_cast<int32_t>(std::clamp<int64_t>(page, INT32_MIN, INT32_MAX)));
  }
}

// One number, or (batch, heads_kv[, blocks]), or (pages, heads_kv) with a block of a page; sizes of
// 1 stand for all.
void RunInputs::set_descales(const RunFiles& files, const RunOptions& options, ProblemDesc& d) {
  if (options.kv_dtype) d.kv_dtype = *options.kv_dtype;
  if (d.kv_dtype != DType::kE4M3) {
    const char* words = "k and v are no bytes; accepted: with --kv-dtype e4m3";
    if (files.k_descale) refuse("--k-descale", *files.k_descale, "{}", words);
    if (files.v_descale) refuse("--v-descale", *files.v_descale, "{}", words);
    if (options.descale_block != 0) {
      refuse("--descale-block", std::to_string(options.descale_block), "{}", words);
    }
    return;
  }
  d.descale_block = options.descale_block;
  d.has_descales = true;  // so that a block is checked where no file has descales of it
  const AttentionProblem p = make_problem(d);
  d.has_descales = files.k_descale.has_value() || files.v_descale.has_value();
  if (!d.has_descales) d.descale_block = 0;
  const TensorExtent extent = descale_extent(p);
  const Shape whole = p.has_page_descales() ? Shape{extent.rows, extent.heads}
                      : d.descale_block > 0 ? Shape{extent.outer, extent.heads, extent.rows}
                                            : Shape{extent.outer, extent.heads};
  const auto read_one = [&](const char* option, const std::string& file, std::vector<float>& data,
                            Strides& strides) {
    const FileTensor tensor = read(option, file);
    const Shape& shape = tensor.shape;
    bool fits = tensor.elements() == 1 || shape.size() == whole.size();
    for (size_t i = 0; fits && tensor.elements() != 1 && i < whole.size(); ++i) {
      fits = shape[i] == whole[i] || shape[i] == 1;
    }
    if (!fits) {
      refuse(option, file, "shape {}; accepted: {}, sizes of 1 in it, or one number",
             shape_text(shape), shape_text(whole));
    }
    data = naming(option, file, [&] { return as_floats(tensor, std::nullopt); });
    if (tensor.elements() == 1) return;
    int64_t stride = 1;
    Shape steps(whole.size(), 0);
    for (size_t i = whole.size(); i-- > 0; stride *= shape[i]) {
      if (shape[i] > 1) steps[i] = stride;
    }
    strides = p.has_page_descales() ? Strides{0, steps[0], steps[1]}
                                    : Strides{steps[0], steps.size() > 2 ? steps[2] : 0, steps[1]};
  };
  if (files.k_descale) read_one("--k-descale", *files.k_descale, k_descale_, d.k_descale);
  if (files.v_descale) read_one("--v-descale", *files.v_descale, v_descale_, d.v_descale);
}

void RunInputs::set_lengths(const RunFiles& files, const Shapes& s, ProblemDesc& d) {
  if (files.cu_seqlens_q) {
    set_packed_q(files, s, d);
  } else {
    d.batch = s.q[0];
    d.seqlen_q = s.q[1];
  }
  std::vector<int64_t> page_numbers;
  if (files.page_table) {
    page_numbers = set_pages(files, s, d);
  } else if (s.k.size() == 3) {
    set_packed_k(files, s, d);
  } else {
    if (s.k[0] != d.batch) {
      refuse("--k", files.k, "batch {} is not that of q; accepted: {}", s.k[0], d.batch);
    }
    d.seqlen_k = s.k[1];
  }
  set_seqused(files, d);
  if (files.page_table) set_page_table(files, page_numbers, d);
}

RunInputs::RunInputs(const RunFiles& files, const RunOptions& options) {
  const FileTensor q = read("--q", files.q), k = read("--k", files.k), v = read("--v", files.v);
  if (files.page_table && files.cu_seqlens_k) {
    refuse("--cu-seqlens-k", *files.cu_seqlens_k,
           "pages are not packed; accepted: --seqused-k with --page-table");
  }
  const bool packed_k = !files.page_table && (files.cu_seqlens_q || files.cu_seqlens_k);
  check_rank("--q", files.q, q.shape, files.cu_seqlens_q.has_value(), "--cu-seqlens-q");
  check_rank("--k", files.k, k.shape, packed_k, "--cu-seqlens-q or --cu-seqlens-k");
  check_rank("--v", files.v, v.shape, packed_k, "--cu-seqlens-q or --cu-seqlens-k");
  const Shapes shapes{q.shape, k.shape, v.shape};
  ProblemDesc d;
  d.dtype = common_type(files, q, k, v, options);
  if (options.out_dtype) d.out_dtype = *options.out_dtype;
  check_shapes(files, shapes);
  d.heads_q = shapes.heads(q.shape);
  d.heads_kv = shapes.heads(k.shape);
  d.head_dim = shapes.dim(q.shape);
  d.head_dim_v = shapes.dim(v.shape);
  set_lengths(files, shapes, d);
  d.causal = options.causal;
  d.window = options.window;
  d.softmax_scale = options.scale;
  d.softcap = options.softcap;
  d.num_splits = options.num_splits;
  d.split_keys = options.split_keys;
  d.has_sink = files.sink.has_value();
  d.deterministic = options.deterministic;
  d.has_dlse = options.has_dlse;
  set_descales(files, options, d);
  problem_ = make_problem(d);
  q_ = as_elements(q, d.dtype);
  k_ = as_elements(k, problem_.kv_dtype);
  v_ = as_elements(v, problem_.kv_dtype);
  if (!files.sink) return;
  const FileTensor sink = read("--sink", *files.sink);
  if (sink.shape != Shape{d.heads_q}) {
    refuse("--sink", *files.sink, "shape {}; accepted: ({},), one a query head",
           shape_text(sink.shape), d.heads_q);
  }
  sink_ = naming("--sink", *files.sink, [&] { return as_floats(sink, options.dtype); });
}

ForwardArgs RunInputs::args() const {
  auto args = common_args<ForwardArgs>();
  if (!k_descale_.empty()) args.k_descale = k_descale_.data();
  if (!v_descale_.empty()) args.v_descale = v_descale_.data();
  return args;
}

std::vector<int64_t> RunInputs::q_shape() const {
  std::vector<int64_t> shape = out_shape();
  shape.back() = problem_.head_dim;
  return shape;
}

std::vector<int64_t> RunInputs::k_shape() const {
  const AttentionProblem& p = problem_;
  if (p.layout_kv == Layout::kPacked) return {p.total_k, p.heads_kv, p.head_dim};
  return {p.batch, p.seqlen_k, p.heads_kv, p.head_dim};
}

std::vector<int64_t> RunInputs::v_shape() const {
  std::vector<int64_t> shape = k_shape();
  shape.back() = problem_.head_dim_v;
  return shape;
}

std::vector<int64_t> RunInputs::out_shape() const {
  const AttentionProblem& p = problem_;
  if (p.layout_q == Layout::kPacked) return {p.total_q, p.heads_q, p.head_dim_v};
  return {p.batch, p.seqlen_q, p.heads_q, p.head_dim_v};
}

std::vector<int64_t> RunInputs::lse_shape() const {
  const AttentionProblem& p = problem_;
  if (p.layout_q == Layout::kPacked) return {p.heads_q, p.total_q};
  return {p.batch, p.heads_q, p.seqlen_q};
}

double RunInputs::flops() const {
  const ForwardArgs inputs = args();
  double pairs = 0;
  for (int64_t b = 0; b < problem_.batch; ++b) {
    const SequenceView view = sequence_view(problem_, inputs, b);
    pairs += static_cast<double>(visible_pairs(view.seqlen_q, view.seqlen_k, problem_.mask));
  }
  return 2.0 * static_cast<double>(problem_.heads_q) * pairs *
         static_cast<double>(problem_.head_dim + problem_.head_dim_v);
}

FileTensor read_shaped(const char* option, const std::string& file, const Shape& shape) {
  FileTensor tensor = read(option, file);
  if (tensor.shape != shape) {
    refuse(option, file, "shape {}; accepted: {}", shape_text(tensor.shape), shape_text(shape));
  }
  return tensor;
}

}  // namespace fa4::cli
