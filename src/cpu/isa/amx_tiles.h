// The tile unit: eight registers of 16 rows x 64 bytes. Sums are tiles 0 to 3, rows of A tiles 4
// and 5, columns of B tiles 6 and 7; sum 2 i + j belongs to A i and B j.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fa4::internal {
namespace {

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) constexpr TileConfig kTileConfig;

// The intrinsics say nothing to the compiler of the memory they read: what was stored before must
// be in memory.
inline void settle_stores() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

class AmxTiles {
 public:
  AmxTiles() { _tile_loadconfig(&kTileConfig); }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  void zero_sums() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // 32 rows x 32 columns of floats.
  void load_sums(const float* c, int64_t row_bytes) {
    settle_stores();
    _tile_loadd(0, c, row_bytes);
    _tile_loadd(1, c + 16, row_bytes);
    _tile_loadd(2, lower(c, row_bytes), row_bytes);
    _tile_loadd(3, lower(c + 16, row_bytes), row_bytes);
  }
  void store_sums(float* c, int64_t row_bytes) {
    _tile_stored(0, c, row_bytes);
    _tile_stored(1, c + 16, row_bytes);
    _tile_stored(2, const_cast<float*>(lower(c, row_bytes)), row_bytes);
    _tile_stored(3, const_cast<float*>(lower(c + 16, row_bytes)), row_bytes);
    settle_stores();
  }
  // sums += A B for 32 rows x 32 bf16 of A and two panels of B (16 pairs x 16 columns each);
  // between() after each of the four products. B passes by once for every 32 rows: the hint keeps
  // it from driving out what stays in L1.
  template <class Between>
  void multiply(const uint32_t* a, const uint32_t* b, int64_t panel_stride,
                const Between& between) {
    settle_stores();
    _tile_stream_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_stream_loadd(7, b + panel_stride, 64);
    _tile_dpbf16ps(0, 4, 6);
    between();
    _tile_loadd(5, a + 16 * 16, 64);
    _tile_dpbf16ps(1, 4, 7);
    between();
    _tile_dpbf16ps(2, 5, 6);
    between();
    _tile_dpbf16ps(3, 5, 7);
    between();
  }

  // The same where it is A that passes by once, for every 32 columns of B.
  template <class Between>
  void multiply_passing_a(const uint32_t* a, const uint32_t* b, int64_t panel_stride,
                          const Between& between) {
    settle_stores();
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    between();
    _tile_loadd(7, b + panel_stride, 64);
    _tile_dpbf16ps(1, 4, 7);
    between();
    _tile_stream_loadd(5, a + 16 * 16, 64);
    _tile_dpbf16ps(2, 5, 6);
    between();
    _tile_dpbf16ps(3, 5, 7);
    between();
  }

  // The products alone, on factors that stay: for the ceiling.
  void load_factors(const uint32_t* p, int64_t row_bytes) {
    settle_stores();
    _tile_loadd(4, p, row_bytes);
    _tile_loadd(5, p, row_bytes);
    _tile_loadd(6, p, row_bytes);
    _tile_loadd(7, p, row_bytes);
  }
  void multiply_loaded() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

 private:
  // 16 rows further down.
  template <class T>
  static const T* lower(const T* p, int64_t row_bytes) {
    return p + 16 * row_bytes / static_cast<int64_t>(sizeof(T));
  }
};

}  // namespace
}  // namespace fa4::internal
