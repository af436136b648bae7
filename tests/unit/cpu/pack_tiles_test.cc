// Rows in tiles, their columns, and the order of keys that pairs of rows are left in.
#include "cpu/pack_tiles.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cpu/isa/vec_plain.h"
#include "cpu/tile_places.h"

namespace fa4::internal {
namespace {

constexpr int64_t kRows = 64, kWidth = 96, kTileM = 128;

uint16_t value_at(int64_t row, int64_t column) {
  return static_cast<uint16_t>(row * kWidth + column + 1);
}

std::vector<uint16_t> rows_in_tiles() {
  std::vector<uint16_t> tiles(kRows * kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    std::array<uint16_t, kWidth> row{};
    for (int64_t d = 0; d < kWidth; ++d) row[d] = value_at(r, d);
    store_in_tiles(row.data(), kWidth, r, tiles.data());
  }
  return tiles;
}

TEST(PackTiles, EveryElementHasAPlaceOfItsOwn) {
  const std::vector<uint16_t> tiles = rows_in_tiles();
  std::vector<bool> taken(tiles.size());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t d = 0; d < kWidth; ++d) {
      const int64_t place = place_in_tiles(r, d, kWidth);
      ASSERT_LT(place, static_cast<int64_t>(tiles.size()));
      EXPECT_FALSE(taken[place]) << r << ", " << d;
      taken[place] = true;
      EXPECT_EQ(tiles[place], value_at(r, d)) << r << ", " << d;
    }
  }
}

TEST(PackTiles, ColumnsAreTheRowsTransposed) {
  const std::vector<uint16_t> tiles = rows_in_tiles();
  std::vector<uint16_t> columns(kWidth * kTileM, 0xabcd);
  EXPECT_FALSE(pack_columns(tiles.data(), kRows, kWidth, kTileM, columns.data()));
  for (int64_t d = 0; d < kWidth; ++d) {
    for (int64_t r = 0; r < kTileM; ++r) {
      EXPECT_EQ(columns[place_in_tiles(d, r, kTileM)], r < kRows ? value_at(r, d) : 0xabcd)
          << d << ", " << r;
    }
  }
}

TEST(PackTiles, WhatIsNotFiniteBecomesZeroInColumns) {
  for (uint16_t bad : {0x7f80, 0xff80, 0x7fc0}) {  // infinity, -infinity, NaN
    std::vector<uint16_t> tiles = rows_in_tiles(), columns(kWidth * kTileM);
    tiles[place_in_tiles(45, 70, kWidth)] = bad;
    EXPECT_TRUE(pack_columns(tiles.data(), kRows, kWidth, kTileM, columns.data()));
    EXPECT_EQ(columns[place_in_tiles(70, 45, kTileM)], 0);
    EXPECT_EQ(columns[place_in_tiles(70, 44, kTileM)], value_at(44, 70));
  }
}

// place_of_pair and place_of_sum say what store_pairs does.
TEST(PackTiles, PairsLieWhereTheirPlacesSay) {
  PlainVec::Row low, high;
  for (int key = 0; key < 32; ++key) {
    low.column[key] = static_cast<uint16_t>(key);
    high.column[key] = static_cast<uint16_t>(key + 100);
  }
  std::array<uint32_t, 512> pairs{};
  PlainVec::store_pairs(pairs.data() + 3 * 16, pairs.data() + 256 + 3 * 16, low, high);
  for (int64_t key = 0; key < 32; ++key) {
    for (int64_t row : {6, 7}) {
      EXPECT_EQ(pairs[place_of_pair(row, key)], static_cast<uint32_t>(key | (key + 100) << 16));
    }
    const PlaceOfKey place = place_of_key(key);
    EXPECT_EQ(place_of_pair(6, key), place.tile * 256 + 3 * 16 + place.column);
    EXPECT_EQ(place_of_sum(64 + key, 5, 96), (2 * 96 + 5) * 32 + place.tile * 16 + place.column);
  }
}

}  // namespace
}  // namespace fa4::internal
