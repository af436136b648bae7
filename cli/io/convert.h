// File tensors as the types that attention takes, with one rounding at most.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/tensor_file.h"

namespace fa4::cli {

// The type that q, k or v of this file has: `asked` (--dtype), else the file's own.
// Throws Failure{kBadInput}: u2 without --dtype bf16, f8 without --dtype, integers.
fa4::internal::DType element_type(const FileTensor& tensor,
                                  std::optional<fa4::internal::DType> asked);

// The type under which a file holds elements of `dtype`, which is not e4m3.
FileType file_type_of(fa4::internal::DType dtype);

// Copied, converted to `dtype` with one rounding to nearest even.
std::vector<unsigned char> as_elements(const FileTensor& tensor, fa4::internal::DType dtype);
// Any float type, widened.
std::vector<double> as_doubles(const FileTensor& tensor, std::optional<fa4::internal::DType> asked);
std::vector<float> as_floats(const FileTensor& tensor, std::optional<fa4::internal::DType> asked);
// i4 or i8.
std::vector<int64_t> as_integers(const FileTensor& tensor);
// The same, of which every value must fit 32 bits.
std::vector<int32_t> as_indices(const FileTensor& tensor);

}  // namespace fa4::cli
