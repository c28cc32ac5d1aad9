#include "scan_bounds.h"

#include <algorithm>

#include "codes.h"
#include "dispatch.h"

#if CROSSBYTE_HAS_AVX2
#include <immintrin.h>
#endif

namespace crossbyte {
namespace {

CROSSBYTE_INLINE const uint8_t* block_of(const BlockCodes& side, int64_t block) {
    return side.codes + block * side.n_codebooks * kBlock;
}

// Codes are read once and in order, but the processor's own prefetching stops at the end of a page and
// leaves a third of the memory's speed unused.
CROSSBYTE_INLINE void prefetch(const uint8_t* codes) {
    constexpr int64_t kAhead = 4096;
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(codes + kAhead);
#endif
}

// Plain loops; what the other levels must agree with.

uint64_t item_bounds_portable(const Sides& sides, int64_t first, int64_t n_blocks, const ItemTables& tables,
                              uint8_t threshold, uint64_t* masks) {
    uint64_t some = 0;
    for (int64_t b = 0; b < n_blocks; ++b) {
        uint16_t sums[kBlock] = {};
        const uint8_t* table = tables.bytes;
        for (const BlockCodes& side : sides) {
            const uint8_t* codes = block_of(side, first + b);
            for (int64_t m = 0; m < side.n_codebooks; ++m, codes += kBlock, table += kWords)
                for (int64_t i = 0; i < kBlock; ++i)
                    sums[i] = static_cast<uint16_t>(sums[i] + table[codes[i]]);
        }
        masks[b] = 0;
        for (int64_t i = 0; i < kBlock; ++i) masks[b] |= static_cast<uint64_t>(sums[i] <= threshold) << i;
        some |= static_cast<uint64_t>(masks[b] != 0) << b;
    }
    return some;
}

uint64_t group_bounds_portable(const Sides& sides, int64_t block, int64_t width, const uint8_t* bytes,
                               const uint8_t* thresholds, uint64_t* masks) {
    uint64_t some = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
        uint16_t sums[kWidest] = {};
        const uint8_t* table = bytes;
        for (const BlockCodes& side : sides) {
            const uint8_t* code = block_of(side, block) + i;
            for (int64_t m = 0; m < side.n_codebooks; ++m, code += kBlock, table += kWords * width)
                for (int64_t q = 0; q < width; ++q)
                    sums[q] = static_cast<uint16_t>(sums[q] + table[*code * width + q]);
        }
        masks[i] = 0;
        for (int64_t q = 0; q < width; ++q) masks[i] |= static_cast<uint64_t>(sums[q] <= thresholds[q]) << q;
        some |= static_cast<uint64_t>(masks[i] != 0) << i;
    }
    return some;
}

#if CROSSBYTE_HAS_AVX2

constexpr int64_t kBooks = 8;  // codebooks whose look-ups are written out one after the other

// Which bytes are at most `limit`, a bit each.
CROSSBYTE_INLINE CROSSBYTE_AVX2 uint64_t at_most(__m256i values, __m256i limit) {
    const __m256i kept = _mm256_cmpeq_epi8(_mm256_min_epu8(values, limit), values);
    return static_cast<uint32_t>(_mm256_movemask_epi8(kept));
}

// Entries of a table of 16 << kTop bytes for 32 codes: every 16 of them are looked up by `low`, and the right
// ones chosen by the kTop highest bits of `codes`, one after the other.
template <int kTop>
CROSSBYTE_INLINE CROSSBYTE_AVX2 __m256i look_up(const __m256i* table, __m256i low, __m256i codes) {
    if constexpr (kTop == 0) {
        return _mm256_shuffle_epi8(table[0], low);
    } else {
        const __m256i rest = _mm256_slli_epi16(codes, 1);
        const __m256i lower = look_up<kTop - 1>(table, low, rest);
        const __m256i upper = look_up<kTop - 1>(table + (1 << (kTop - 1)), low, rest);
        return _mm256_blendv_epi8(lower, upper, codes);  // which looks at the top bit of each byte
    }
}

// Adds the bytes of one codebook, looked up by the high kBits bits of the codes, to the sums of blocks.
template <int kBits>
CROSSBYTE_AVX2 void add_prefixes(const uint8_t* codes, int64_t stride, int64_t n_blocks,
                                 const uint8_t* prefixes, __m256i* sums) {
    constexpr int kTop = kBits - 4;
    __m256i table[1 << kTop];
    for (int t = 0; t < 1 << kTop; ++t)
        table[t] =
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(prefixes + 16 * t)));
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    for (int64_t b = 0; b < n_blocks; ++b, codes += stride) {
        prefetch(codes);
        for (int64_t half = 0; half < 2; ++half) {
            const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes) + half);
            const __m256i low = _mm256_and_si256(_mm256_srli_epi16(own, 8 - kBits), nibble);
            sums[2 * b + half] = _mm256_adds_epu8(sums[2 * b + half], look_up<kTop>(table, low, own));
        }
    }
}

CROSSBYTE_AVX2 uint64_t item_bounds_avx2(const Sides& sides, int64_t first, int64_t n_blocks,
                                         const ItemTables& tables, uint8_t threshold, uint64_t* masks) {
    constexpr decltype(&add_prefixes<4>) kAdd[] = {add_prefixes<4>, add_prefixes<5>, add_prefixes<6>,
                                                   add_prefixes<7>, add_prefixes<8>};
    __m256i sums[2 * kTile] = {};
    const uint8_t *prefixes = tables.prefixes, *bits = tables.bits;
    for (const BlockCodes& side : sides) {
        const uint8_t* codes = block_of(side, first);
        for (int64_t m = 0; m < side.n_codebooks; ++m, codes += kBlock, prefixes += kWords, ++bits)
            kAdd[*bits - 4](codes, side.n_codebooks * kBlock, n_blocks, prefixes, sums);
    }
    const __m256i limit = _mm256_set1_epi8(static_cast<char>(threshold));
    uint64_t some = 0;
    for (int64_t b = 0; b < n_blocks; ++b) {
        masks[b] = at_most(sums[2 * b], limit) | at_most(sums[2 * b + 1], limit) << 32;
        some |= static_cast<uint64_t>(masks[b] != 0) << b;
    }
    return some;
}

template <int64_t kParts>
CROSSBYTE_INLINE CROSSBYTE_AVX2 void add_entry(const uint8_t* entry, __m256i* sums) {
    for (int64_t p = 0; p < kParts; ++p)
        sums[p] = _mm256_adds_epu8(sums[p], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entry) + p));
}

template <int64_t kWidth>
CROSSBYTE_AVX2 uint64_t group_bounds_avx2(const Sides& sides, int64_t block, const uint8_t* bytes,
                                          const uint8_t* thresholds, uint64_t* masks) {
    constexpr int64_t kParts = kWidth / 32, kEntries = kWords * kWidth;
    const __m256i* limits = reinterpret_cast<const __m256i*>(thresholds);
    uint64_t some = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
        __m256i sums[kParts] = {};
        const uint8_t* table = bytes;
        for (const BlockCodes& side : sides) {
            const uint8_t* code = block_of(side, block) + i;
            int64_t m = 0;
            for (; m + kBooks <= side.n_codebooks;
                 m += kBooks, code += kBooks * kBlock, table += kBooks * kEntries)
#pragma GCC unroll 8
                for (int64_t j = 0; j < kBooks; ++j)
                    add_entry<kParts>(table + j * kEntries + code[j * kBlock] * kWidth, sums);
            for (; m < side.n_codebooks; ++m, code += kBlock, table += kEntries)
                add_entry<kParts>(table + *code * kWidth, sums);
        }
        masks[i] = 0;
        for (int64_t p = 0; p < kParts; ++p)
            masks[i] |= at_most(sums[p], _mm256_loadu_si256(limits + p)) << (32 * p);
        some |= static_cast<uint64_t>(masks[i] != 0) << i;
    }
    return some;
}

// A table of 256 bytes in four registers: two permutations of 128 entries by the low seven bits of a
// code, and the right one chosen by its top bit.
struct Table512 {
    __m512i part[4];
};

CROSSBYTE_INLINE CROSSBYTE_AVX512 __m512i look_up_codes(const Table512& table, __m512i codes) {
    const __m512i lower = _mm512_permutex2var_epi8(table.part[0], codes, table.part[1]);
    const __m512i upper = _mm512_permutex2var_epi8(table.part[2], codes, table.part[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), lower, upper);
}

template <int64_t kTogether>
CROSSBYTE_INLINE CROSSBYTE_AVX512 void item_masks_avx512(const Sides& sides, int64_t block,
                                                         const uint8_t* bytes, __m512i limit,
                                                         uint64_t* masks) {
    __m512i sums[kTogether] = {};
    const uint8_t* at = bytes;
    for (const BlockCodes& side : sides) {
        const uint8_t* codes = block_of(side, block);
        const int64_t stride = side.n_codebooks * kBlock;
        for (int64_t m = 0; m < side.n_codebooks; ++m, codes += kBlock, at += kWords) {
            for (int64_t j = 0; j < kTogether; ++j) prefetch(codes + j * stride);
            Table512 table;
            for (int64_t t = 0; t < 4; ++t) table.part[t] = _mm512_loadu_si512(at + 64 * t);
            for (int64_t j = 0; j < kTogether; ++j)
                sums[j] =
                    _mm512_adds_epu8(sums[j], look_up_codes(table, _mm512_loadu_si512(codes + j * stride)));
        }
    }
    for (int64_t j = 0; j < kTogether; ++j) masks[j] = _mm512_cmple_epu8_mask(sums[j], limit);
}

CROSSBYTE_AVX512 uint64_t item_bounds_avx512(const Sides& sides, int64_t first, int64_t n_blocks,
                                             const ItemTables& tables, uint8_t threshold, uint64_t* masks) {
    const __m512i limit = _mm512_set1_epi8(static_cast<char>(threshold));
    constexpr int64_t kTogether = 4;
    int64_t b = 0;
    for (; b + kTogether <= n_blocks; b += kTogether)
        item_masks_avx512<kTogether>(sides, first + b, tables.bytes, limit, masks + b);
    for (; b < n_blocks; ++b) item_masks_avx512<1>(sides, first + b, tables.bytes, limit, masks + b);
    uint64_t some = 0;
    for (b = 0; b < n_blocks; ++b) some |= static_cast<uint64_t>(masks[b] != 0) << b;
    return some;
}

CROSSBYTE_AVX512 uint64_t group_bounds_avx512(const Sides& sides, int64_t block, const uint8_t* bytes,
                                              const uint8_t* thresholds, uint64_t* masks) {
    constexpr int64_t kEntries = kWords * 64;
    const __m512i limits = _mm512_loadu_si512(thresholds);
    uint64_t some = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
        __m512i sums = _mm512_setzero_si512();
        const uint8_t* table = bytes;
        for (const BlockCodes& side : sides) {
            const uint8_t* code = block_of(side, block) + i;
            int64_t m = 0;
            for (; m + kBooks <= side.n_codebooks;
                 m += kBooks, code += kBooks * kBlock, table += kBooks * kEntries)
#pragma GCC unroll 8
                for (int64_t j = 0; j < kBooks; ++j)
                    sums = _mm512_adds_epu8(sums,
                                            _mm512_loadu_si512(table + j * kEntries + code[j * kBlock] * 64));
            for (; m < side.n_codebooks; ++m, code += kBlock, table += kEntries)
                sums = _mm512_adds_epu8(sums, _mm512_loadu_si512(table + *code * 64));
        }
        masks[i] = _mm512_cmple_epu8_mask(sums, limits);
        some |= static_cast<uint64_t>(masks[i] != 0) << i;
    }
    return some;
}

#endif

}  // namespace

bool prefixes_are_used() {
    return level() == Level::avx2;
}

uint64_t item_bounds(const Sides& sides, int64_t first, int64_t n_blocks, const ItemTables& tables,
                     uint8_t threshold, uint64_t* masks) {
    auto* bounds = &item_bounds_portable;
#if CROSSBYTE_HAS_AVX2
    if (level() == Level::avx2) bounds = &item_bounds_avx2;
    if (level() == Level::avx512) bounds = &item_bounds_avx512;
#endif
    return bounds(sides, first, n_blocks, tables, threshold, masks);
}

uint64_t group_bounds(const Sides& sides, int64_t block, int64_t width, const uint8_t* bytes,
                      const uint8_t* thresholds, uint64_t* masks) {
#if CROSSBYTE_HAS_AVX2
    if (level() == Level::avx512 && width == 64)
        return group_bounds_avx512(sides, block, bytes, thresholds, masks);
    if (level() >= Level::avx2) {
        auto* bounds = width == 64 ? &group_bounds_avx2<64> : &group_bounds_avx2<32>;
        return bounds(sides, block, bytes, thresholds, masks);
    }
#endif
    return group_bounds_portable(sides, block, width, bytes, thresholds, masks);
}

}  // namespace crossbyte
