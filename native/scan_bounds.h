// Sums of table bytes for blocks of items: the lower bounds of the scan, at every level.
#pragma once

#include <cstdint>
#include <vector>

namespace crossbyte {

constexpr int64_t kBlock = 64;     // items that lie together: codes are [block][codebook][item of the block]
constexpr int64_t kPrefixes = 64;  // high six bits of a code

struct BlockCodes {
    const uint8_t* codes;  // [n_blocks, M, kBlock]
    int64_t n_codebooks;   // M
};

// Sides of the items whose tables are added, one after the other.
using Sides = std::vector<BlockCodes>;

constexpr int64_t kTile = 64;  // blocks at most that one call looks at

// One query. masks[b], bit i: the bytes of item i of block `first` + b sum to at most `threshold` (saturated
// at 255). The result's bit b says whether masks[b] has any bit. `bytes` is [all codebooks, 256]; `prefixes`
// [all codebooks, kPrefixes] holds the smallest byte of each prefix: the AVX2 path looks up prefixes, so its
// sums may be smaller still.
uint64_t item_bounds(const Sides& sides, int64_t first, int64_t n_blocks, const uint8_t* bytes,
                     const uint8_t* prefixes, uint8_t threshold, uint64_t* masks);

constexpr int64_t kWidest = 64;  // queries of the largest group

// A group of `width` (32 or 64) queries and one block; `bytes` is [all codebooks, 256, width].
// masks[i], bit q: the same for item i and query q with thresholds[q]. The result's bit i: whether masks[i]
// has any bit.
uint64_t group_bounds(const Sides& sides, int64_t block, int64_t width, const uint8_t* bytes,
                      const uint8_t* thresholds, uint64_t* masks);

}  // namespace crossbyte
