#include "tables.h"

#include "codes.h"
#include "dispatch.h"

namespace crossbyte {
namespace {

constexpr int64_t kStrip = 64;  // words whose sums stay in registers

CROSSBYTE_INLINE void distance_tables_body(const float* points, const float* words_by_dim, int64_t n,
                                           int64_t n_codebooks, int64_t n_dims, float* tables) {
    constexpr int64_t kParts = kStrip / kFloats;
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t at = 0; at < n_codebooks * kWords; at += kStrip) {
            const float* words = words_by_dim + (at / kWords) * n_dims * kWords + at % kWords;
            Floats8 sums[kParts] = {};
            for (int64_t j = 0; j < n_dims; ++j) {
                const float x = points[i * n_dims + j];
#pragma GCC unroll 8
                for (int64_t p = 0; p < kParts; ++p) {
                    const Floats8 difference = x - view8(words + j * kWords + p * kFloats);
                    sums[p] += difference * difference;
                }
            }
            float* out = tables + i * n_codebooks * kWords + at;
            for (int64_t p = 0; p < kParts; ++p) view8(out + p * kFloats) = sums[p];
        }
    }
}

}  // namespace

CROSSBYTE_DISPATCH(void, distance_tables,
                   (const float* points, const float* words_by_dim, int64_t n, int64_t n_codebooks,
                    int64_t n_dims, float* tables),
                   (points, words_by_dim, n, n_codebooks, n_dims, tables))

}  // namespace crossbyte
