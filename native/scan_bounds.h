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

// One query. masks[b], bit i: the bytes of item i of block `first` + b sum to at most `threshold` (saturated
// at 255). `bytes` is [all codebooks, 256]; `prefixes` [all codebooks, kPrefixes] holds the smallest byte
// of each prefix: the AVX2 path looks up prefixes, so its sums may be smaller still.
void item_bounds(const Sides& sides, int64_t first, int64_t n_blocks, const uint8_t* bytes,
                 const uint8_t* prefixes, uint8_t threshold, uint64_t* masks);

// A group of `width` (32 or 64) queries; `bytes` is [all codebooks, 256, width].
// masks[b * kBlock + i], bit q: the same for item i and query q with thresholds[q]; some[b], bit i: whether
// that mask has any bit.
void group_bounds(const Sides& sides, int64_t first, int64_t n_blocks, int64_t width, const uint8_t* bytes,
                  const uint8_t* thresholds, uint64_t* some, uint64_t* masks);

}  // namespace crossbyte
