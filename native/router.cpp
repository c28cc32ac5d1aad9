#include "router.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dispatch.h"
#include "order.h"

#if CROSSBYTE_HAS_AVX2
#include <immintrin.h>
#endif

namespace crossbyte {
namespace {

constexpr int64_t kLanes = 16;        // cells that lie together
constexpr int64_t kTogether = 4;      // blocks of them that are multiplied in one go
constexpr int64_t kAtOnce = 8;        // cells that are scored side by side
constexpr int64_t kPrefetched = 256;  // cells
constexpr double kRounding = 6e-8;    // a little more than the relative error of one float operation
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest 16-bit value with which no sum of products over the dimensions overflows 32 bits.
int32_t largest_value(int64_t n_dims) {
    const double most = std::sqrt(2147483647.0 / static_cast<double>(std::max<int64_t>(n_dims, 2)));
    return static_cast<int32_t>(std::min(most, 32767.0));
}

double length(const double* values, int64_t n) {
    double sum = 0.0;
    for (int64_t j = 0; j < n; ++j) sum += values[j] * values[j];
    return std::sqrt(sum);
}

float largest_of(const float* values, int64_t n) {
    float largest = 0.0f;
    for (int64_t j = 0; j < n; ++j) {
        if (!std::isfinite(values[j])) return kInfinity;
        largest = std::max(largest, std::fabs(values[j]));
    }
    return largest;
}

// Rounds finite values to multiples of `step`; gives the length of what was rounded away.
double round_values(const float* values, int64_t n, double step, int16_t* rounded, int64_t stride) {
    double lost = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        const double whole = step == 0.0 ? 0.0 : std::nearbyint(values[j] / step);
        rounded[j / 2 * stride + j % 2] = static_cast<int16_t>(whole);
        lost += (values[j] - whole * step) * (values[j] - whole * step);
    }
    return std::sqrt(lost);
}

// products[b, lane] = sum over the pairs of a block of query * point.
using Multiply = void (*)(const int16_t* blocks, const int16_t* query, int64_t n_pairs, int64_t n_blocks,
                          int32_t* products);

void multiply_portable(const int16_t* blocks, const int16_t* query, int64_t n_pairs, int64_t n_blocks,
                       int32_t* products) {
    for (int64_t b = 0; b < n_blocks; ++b, products += kLanes) {
        int32_t sums[kLanes] = {};
        for (int64_t p = 0; p < n_pairs; ++p, blocks += 2 * kLanes)
            for (int64_t l = 0; l < kLanes; ++l)
                sums[l] += query[2 * p] * blocks[2 * l] + query[2 * p + 1] * blocks[2 * l + 1];
        std::copy(sums, sums + kLanes, products);
    }
}

#if CROSSBYTE_HAS_AVX2

CROSSBYTE_INLINE int32_t pair_at(const int16_t* query, int64_t p) {
    int32_t pair;
    std::memcpy(&pair, query + 2 * p, sizeof pair);
    return pair;
}

template <int64_t kBlocks>
CROSSBYTE_INLINE CROSSBYTE_AVX2 void some_blocks_avx2(const int16_t* blocks, const int16_t* query,
                                                      int64_t n_pairs, int32_t* products) {
    __m256i sums[2 * kBlocks] = {};
    for (int64_t p = 0; p < n_pairs; ++p) {
        const __m256i pair = _mm256_set1_epi32(pair_at(query, p));
        for (int64_t b = 0; b < kBlocks; ++b)
            for (int64_t half = 0; half < 2; ++half) {
                const int16_t* at = blocks + (b * n_pairs + p) * 2 * kLanes + half * kLanes;
                const __m256i points = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
                sums[2 * b + half] = _mm256_add_epi32(sums[2 * b + half], _mm256_madd_epi16(points, pair));
            }
    }
    for (int64_t s = 0; s < 2 * kBlocks; ++s)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(products) + s, sums[s]);
}

CROSSBYTE_AVX2 void multiply_avx2(const int16_t* blocks, const int16_t* query, int64_t n_pairs,
                                  int64_t n_blocks, int32_t* products) {
    int64_t b = 0;
    for (; b + kTogether <= n_blocks; b += kTogether)
        some_blocks_avx2<kTogether>(blocks + b * n_pairs * 2 * kLanes, query, n_pairs, products + b * kLanes);
    for (; b < n_blocks; ++b)
        some_blocks_avx2<1>(blocks + b * n_pairs * 2 * kLanes, query, n_pairs, products + b * kLanes);
}

template <int64_t kBlocks>
CROSSBYTE_INLINE CROSSBYTE_AVX512 void some_blocks_avx512(const int16_t* blocks, const int16_t* query,
                                                          int64_t n_pairs, int32_t* products) {
    __m512i sums[kBlocks] = {};
    for (int64_t p = 0; p < n_pairs; ++p) {
        const __m512i pair = _mm512_set1_epi32(pair_at(query, p));
        for (int64_t b = 0; b < kBlocks; ++b) {
            const __m512i points = _mm512_loadu_si512(blocks + (b * n_pairs + p) * 2 * kLanes);
            sums[b] = _mm512_add_epi32(sums[b], _mm512_madd_epi16(points, pair));
        }
    }
    for (int64_t b = 0; b < kBlocks; ++b) _mm512_storeu_si512(products + b * kLanes, sums[b]);
}

CROSSBYTE_AVX512 void multiply_avx512(const int16_t* blocks, const int16_t* query, int64_t n_pairs,
                                      int64_t n_blocks, int32_t* products) {
    int64_t b = 0;
    for (; b + kTogether <= n_blocks; b += kTogether)
        some_blocks_avx512<kTogether>(blocks + b * n_pairs * 2 * kLanes, query, n_pairs,
                                      products + b * kLanes);
    for (; b < n_blocks; ++b)
        some_blocks_avx512<1>(blocks + b * n_pairs * 2 * kLanes, query, n_pairs, products + b * kLanes);
}

#endif

Multiply multiply_of_level() {
#if CROSSBYTE_HAS_AVX2
    if (level() == Level::avx512) return &multiply_avx512;
    if (level() == Level::avx2) return &multiply_avx2;
#endif
    return &multiply_portable;
}

// Scores of a block, less the square of the query, up to the bound of their error; gives the lowest.
CROSSBYTE_INLINE float rough_scores_body(const float* bases, const int32_t* products, float scale,
                                         float* scores) {
    for (int64_t l = 0; l < kLanes; ++l) scores[l] = bases[l] - scale * static_cast<float>(products[l]);
    float low[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) low[l] = scores[l];
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; ++l) low[l] = low[l] < low[l + half] ? low[l] : low[l + half];
    return low[0];
}
CROSSBYTE_DISPATCH(float, rough_scores,
                   (const float* bases, const int32_t* products, float scale, float* scores),
                   (bases, products, scale, scores))

}  // namespace

Router::Router(const float* points, const float* offsets, int64_t n_cells, int64_t n_dims)
    : points_(points), offsets_(offsets), n_cells_(n_cells), n_dims_(n_dims), n_pairs_((n_dims + 1) / 2) {
    const int64_t n_blocks = (n_cells + kLanes - 1) / kLanes;
    rounded_.assign(static_cast<size_t>(n_blocks * n_pairs_ * 2 * kLanes), 0);
    bases_.assign(static_cast<size_t>(n_blocks * kLanes), kInfinity);
    const float largest = largest_of(points, n_cells * n_dims);
    largest_offset_ = largest_of(offsets, n_cells);
    if (!std::isfinite(largest) || !std::isfinite(largest_offset_)) {
        longest_ = kInfinity;  // no bound holds: every cell is scored
        return;
    }
    step_ = static_cast<double>(largest) / largest_value(n_dims);
    std::vector<double> exact(static_cast<size_t>(n_dims));
    for (int64_t c = 0; c < n_cells; ++c) {
        const float* point = points + c * n_dims;
        int16_t* at = rounded_.data() + (c / kLanes * n_pairs_ * kLanes + c % kLanes) * 2;
        farthest_off_ = std::max(farthest_off_, round_values(point, n_dims, step_, at, 2 * kLanes));
        std::copy(point, point + n_dims, exact.begin());
        const double own = length(exact.data(), n_dims), base = own * own + offsets[c];
        longest_ = std::max(longest_, own);
        largest_base_ = std::max(largest_base_, std::fabs(base));
        bases_[static_cast<size_t>(c)] = static_cast<float>(base);
    }
}

// Keys of the cells that may be among the first `count`.
std::vector<uint64_t> Router::candidates(const float* query, int64_t count) const {
    const float largest = largest_of(query, n_dims_);
    const double step = static_cast<double>(largest) / largest_value(n_dims_);
    std::vector<int16_t> rounded(static_cast<size_t>(2 * n_pairs_), 0);
    std::vector<double> exact(query, query + n_dims_);
    const double own = length(exact.data(), n_dims_);
    const float scale = static_cast<float>(2.0 * step * step_);
    double error = kInfinity;
    if (std::isfinite(largest) && std::isfinite(longest_)) {
        const double lost = round_values(query, n_dims_, step, rounded.data(), 2);
        const double products = 2.0 * (own + lost) * (longest_ + farthest_off_);
        const double square = (own + longest_) * (own + longest_) + largest_offset_;
        error = 2.0 * (lost * longest_ + (own + lost) * farthest_off_);  // what 16 bits lose
        error += std::fabs(2.0 * step * step_ - scale) * 2147483648.0;   // and the scale in float
        error += 4.0 * kRounding * (largest_base_ + products);           // and these sums in float
        error += static_cast<double>(n_dims_ + 4) * kRounding * square;  // and the true ones
        error = 1.001 * error + 1e-37;
    }
    std::vector<uint64_t> keys;
    if (!(error < 1e37) || 4 * count > n_cells_) {
        for (int64_t c = 0; c < n_cells_; ++c) keys.push_back(key_of(0.0f, c));
        return keys;
    }
    const Multiply multiply = multiply_of_level();
    const int64_t n_blocks = static_cast<int64_t>(bases_.size()) / kLanes;
    std::vector<float> scores(bases_.size()), lowest(static_cast<size_t>(n_blocks));
    int32_t products[kTogether * kLanes];
    for (int64_t first = 0; first < n_blocks; first += kTogether) {
        const int64_t n = std::min(kTogether, n_blocks - first);
        multiply(rounded_.data() + first * n_pairs_ * 2 * kLanes, rounded.data(), n_pairs_, n, products);
        for (int64_t b = first; b < first + n; ++b)
            lowest[b] = rough_scores(bases_.data() + b * kLanes, products + (b - first) * kLanes, scale,
                                     scores.data() + b * kLanes);
    }
    // As many blocks, and so as many cells at least, are not above this one.
    std::vector<float> ranked(count <= n_blocks ? lowest : scores);
    std::nth_element(ranked.begin(), ranked.begin() + count - 1, ranked.end());
    const float limit = std::nextafter(static_cast<float>(ranked[count - 1] + 2.0 * error), kInfinity);
    for (int64_t b = 0; b < n_blocks; ++b) {
        if (!(lowest[b] <= limit)) continue;
        for (int64_t c = b * kLanes; c < std::min((b + 1) * kLanes, n_cells_); ++c)
            if (scores[c] <= limit) keys.push_back(key_of(scores[c], c));
    }
    return keys;
}

// Puts the true scores into the keys of cells.
void Router::score(const float* query, std::vector<uint64_t>& keys) const {
    const int64_t n = static_cast<int64_t>(keys.size());
    const auto point_of = [&](int64_t i) { return points_ + place_of(keys[i]) * n_dims_; };
    for (int64_t i = 0; i < std::min(n, kPrefetched); ++i)  // they lie anywhere
        for (int64_t j = 0; j < n_dims_; j += 16) prefetch(point_of(i) + j);
    for (int64_t at = 0; at < n; at += kAtOnce) {
        const int64_t some = std::min(kAtOnce, n - at);
        const float* points[kAtOnce];
        float sums[kAtOnce] = {};
        for (int64_t i = 0; i < kAtOnce; ++i) points[i] = point_of(at + std::min(i, some - 1));
        for (int64_t j = 0; j < n_dims_; ++j)
            for (int64_t i = 0; i < kAtOnce; ++i) {
                const float difference = query[j] - points[i][j];
                sums[i] += difference * difference;
            }
        for (int64_t i = 0; i < some; ++i) {
            const int64_t cell = place_of(keys[at + i]);
            keys[at + i] = key_of(sums[i] + offsets_[cell], cell);
        }
    }
}

void Router::choose(const float* query, int64_t count, int64_t* cells) const {
    count = std::min(count, n_cells_);
    if (count <= 0) return;
    std::vector<uint64_t> keys = candidates(query, count);
    score(query, keys);
    std::partial_sort(keys.begin(), keys.begin() + count, keys.end());
    for (int64_t i = 0; i < count; ++i) cells[i] = place_of(keys[i]);
}

}  // namespace crossbyte
