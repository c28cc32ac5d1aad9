// Sums of table bytes for blocks of items: the lower bounds of the scan, at every level.
#pragma once

#include <cstdint>
#include <vector>

namespace crossbyte {

constexpr int64_t kBlock = 64;  // items that lie together: codes are [block][codebook][item of the block]

struct BlockCodes {
    const uint8_t* codes;  // [n_blocks, M, kBlock]
    int64_t n_codebooks;   // M
};

// Sides of the items whose tables are added, one after the other.
using Sides = std::vector<BlockCodes>;

constexpr int64_t kTile = 64;  // blocks at most that one call looks at

// The bytes of one query's tables. Where a processor cannot hold 256 of them in registers it looks up the
// smallest byte of the words that share their high bits, and of each codebook as many bits as pay.
struct ItemTables {
    const uint8_t* bytes;  // [all codebooks, 256]
    const uint8_t*
        prefixes;         // [all codebooks, 256], of which 2^bits are used: the smallest byte of each prefix
    const uint8_t* bits;  // [all codebooks], 4 to 8
};

// One query. masks[b], bit i: the bytes of item i of block `first` + b sum to at most `threshold` (saturated
// at 255). The result's bit b says whether masks[b] has any bit. The AVX2 path adds the bytes of prefixes, so
// that its sums may be smaller.
uint64_t item_bounds(const Sides& sides, int64_t first, int64_t n_blocks, const ItemTables& tables,
                     uint8_t threshold, uint64_t* masks);

// Whether item_bounds looks up prefixes at the current level.
bool prefixes_are_used();

constexpr int64_t kWidest = 64;  // queries of the largest group

// A group of `width` (32 or 64) queries and one block; `bytes` is [all codebooks, 256, width].
// masks[i], bit q: the same for item i and query q with thresholds[q]. The result's bit i: whether masks[i]
// has any bit.
uint64_t group_bounds(const Sides& sides, int64_t block, int64_t width, const uint8_t* bytes,
                      const uint8_t* thresholds, uint64_t* masks);

}  // namespace crossbyte
