#include "codes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dispatch.h"
#include "order.h"

namespace crossbyte {
namespace {

constexpr int64_t kRowsAtOnce = 4;    // items that share one reading of the words
constexpr int64_t kItemsAtOnce = 32;  // items that take a step together, while its tables are in the cache
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Numbers that the compiler keeps in one register of so many bytes: element-wise, at every level. Not one
// template, since a type that depends on one loses its attributes. kParts registers of words are summed
// together.
template <int kBytes>
struct Lanes;
#define CROSSBYTE_LANES(bytes, parts)                                                                \
    template <>                                                                                      \
    struct Lanes<bytes> {                                                                            \
        typedef float Floats __attribute__((vector_size(bytes), aligned(4), may_alias));             \
        typedef int16_t Shorts __attribute__((vector_size(bytes), aligned(2), may_alias));           \
        static constexpr int64_t kParts = parts;                                                     \
        static CROSSBYTE_INLINE const Floats& view(const float* at) {                                \
            return *reinterpret_cast<const Floats*>(at);                                             \
        }                                                                                            \
        static CROSSBYTE_INLINE Floats& view(float* at) { return *reinterpret_cast<Floats*>(at); }   \
        static CROSSBYTE_INLINE const Shorts& view(const int16_t* at) {                              \
            return *reinterpret_cast<const Shorts*>(at);                                             \
        }                                                                                            \
        static CROSSBYTE_INLINE Shorts& view(int16_t* at) { return *reinterpret_cast<Shorts*>(at); } \
        static CROSSBYTE_INLINE void keep_smaller(Floats& kept, const Floats& other) {               \
            kept = other < kept ? other : kept;                                                      \
        }                                                                                            \
        static CROSSBYTE_INLINE void keep_smaller(Shorts& kept, const Shorts& other) {               \
            kept = other < kept ? other : kept;                                                      \
        }                                                                                            \
        static CROSSBYTE_INLINE void keep_larger(Floats& kept, const Floats& other) {                \
            kept = other > kept ? other : kept;                                                      \
        }                                                                                            \
    };
CROSSBYTE_LANES(16, 2)
CROSSBYTE_LANES(32, 2)
CROSSBYTE_LANES(64, 4)
#undef CROSSBYTE_LANES

// Inner products of one word of codebook j with all words of codebook m.
CROSSBYTE_INLINE const float* gram_row(const Codebooks& books, int64_t m, int64_t j, int64_t code) {
    return books.gram + ((m * books.n_codebooks + j) * kWords + code) * kWords;
}

// Sum over ordered pairs i != j of the inner products of the chosen words.
CROSSBYTE_INLINE float cross_term(const Codebooks& books, const uint8_t* code) {
    float sum = 0.0f;
    for (int64_t i = 0; i < books.n_codebooks; ++i)
        for (int64_t j = 0; j < i; ++j) sum += gram_row(books, j, i, code[i])[code[j]];
    return 2.0f * sum;
}

// The objective of one item in double precision: the judge between two codes.
CROSSBYTE_INLINE double exact_objective(const Codebooks& books, const float* target, CrossPenalty penalty,
                                        const uint8_t* code) {
    double error = 0.0, total = 0.0, own = 0.0;
    for (int64_t j = 0; j < books.n_dims; ++j) {
        double sum = 0.0;
        for (int64_t m = 0; m < books.n_codebooks; ++m) {
            const double w = books.words[(m * kWords + code[m]) * books.n_dims + j];
            sum += w;
            own += w * w;
        }
        total += sum * sum;
        error += (target[j] - sum) * (target[j] - sum);
    }
    const double gap = total - own - penalty.epsilon;
    return error + penalty.weight * gap * gap;
}

// A line of the cache, where the widest registers must not straddle two.
struct alignas(64) Line {
    float values[16];
};

struct Workspace {
    alignas(64) float overlaps[kWords];
    alignas(64) float scores[kWords];
    std::vector<Line> lines;         // [kItemsAtOnce, M, K]: linear terms of some items
    std::vector<float> norms;        // [M, K]
    std::vector<const float*> rows;  // [M]: of the gram matrix
    std::vector<uint8_t> code;       // [M]
    explicit Workspace(const Codebooks& books)
        : lines(kItemsAtOnce * books.n_codebooks * (kWords / 16)),
          norms(books.n_codebooks * kWords),
          rows(books.n_codebooks),
          code(books.n_codebooks) {
        for (int64_t m = 0; m < books.n_codebooks; ++m)
            for (int64_t k = 0; k < kWords; ++k) norms[m * kWords + k] = gram_row(books, m, m, k)[k];
    }
    float* linear() { return lines.empty() ? nullptr : lines.data()->values; }
};

// linear[r, m, k] = |word(m, k)|^2 - 2 target(r) . word(m, k), the product summed over the dimensions in
// order.
template <int kBytes, int64_t kRows>
CROSSBYTE_INLINE void linear_terms(const Codebooks& books, const float* targets, float* linear,
                                   const Workspace& w) {
    using Width = Lanes<kBytes>;
    using Floats = typename Width::Floats;
    constexpr int64_t kParts = Width::kParts, kLanes = kBytes / sizeof(float);
    const int64_t n_words = books.n_codebooks * kWords;
    for (int64_t at = 0; at < n_words; at += kParts * kLanes) {
        const float* words = books.words_by_dim + (at / kWords) * books.n_dims * kWords + at % kWords;
        Floats sums[kRows][kParts] = {};
        for (int64_t j = 0; j < books.n_dims; ++j)
#pragma GCC unroll 4
            for (int64_t r = 0; r < kRows; ++r) {
                const float t = targets[r * books.n_dims + j];
#pragma GCC unroll 4
                for (int64_t p = 0; p < kParts; ++p)
                    sums[r][p] += t * Width::view(words + j * kWords + p * kLanes);
            }
        for (int64_t r = 0; r < kRows; ++r)
            for (int64_t p = 0; p < kParts; ++p)
                Width::view(linear + r * n_words + at + p * kLanes) =
                    Width::view(w.norms.data() + at + p * kLanes) - 2.0f * sums[r][p];
    }
}

// Linear terms of up to kItemsAtOnce items.
template <int kBytes>
CROSSBYTE_INLINE void linear_terms_of(const Codebooks& books, const float* targets, int64_t n, Workspace& w) {
    const int64_t n_words = books.n_codebooks * kWords;
    int64_t i = 0;
    for (; i + kRowsAtOnce <= n; i += kRowsAtOnce)
        linear_terms<kBytes, kRowsAtOnce>(books, targets + i * books.n_dims, w.linear() + i * n_words, w);
    for (; i < n; ++i)
        linear_terms<kBytes, 1>(books, targets + i * books.n_dims, w.linear() + i * n_words, w);
}

// Replaces the word of codebook m by the best one with all others fixed; true if it changed.
template <int kBytes>
CROSSBYTE_INLINE bool improve_one(const Codebooks& books, CrossPenalty penalty, int64_t m,
                                  const float* linear, Workspace& w, float& cross) {
    using Width = Lanes<kBytes>;
    using Floats = typename Width::Floats;
    constexpr int64_t kParts = 4, kLanes = kBytes / sizeof(float);
    const int64_t M = books.n_codebooks, own = w.code[m];
    const float mu = static_cast<float>(penalty.weight), eps = static_cast<float>(penalty.epsilon);
    float* overlaps = w.overlaps;  // with each word of this codebook, summed over the others
    const float** rows = w.rows.data();
    float current = 0.0f;
    for (int64_t j = 0; j < M; ++j) {
        rows[j] = gram_row(books, m, j, w.code[j]);
        if (j != m) current += rows[j][own];
    }
    const float rest = cross - 2.0f * current;
    Floats least = Floats{} + kInfinity;
    for (int64_t at = 0; at < kWords; at += kParts * kLanes) {
        Floats sums[kParts] = {};
        for (int64_t j = 0; j < M; ++j) {
            if (j == m) continue;
#pragma GCC unroll 4
            for (int64_t p = 0; p < kParts; ++p) sums[p] += Width::view(rows[j] + at + p * kLanes);
        }
#pragma GCC unroll 4
        for (int64_t p = 0; p < kParts; ++p) {
            const Floats gap = rest + 2.0f * sums[p] - eps;
            const Floats score = Width::view(linear + at + p * kLanes) + 2.0f * sums[p] + mu * gap * gap;
            Width::view(overlaps + at + p * kLanes) = sums[p];
            Width::view(w.scores + at + p * kLanes) = score;
            Width::keep_smaller(least, score);
        }
    }
    // Scores that overflowed may all be NaN; only one that is less than another is sure to be found again.
    float smallest = least[0];
    for (int64_t l = 1; l < kLanes; ++l) smallest = std::min(smallest, least[l]);
    const float* scores = w.scores;
    if (!(smallest < scores[own])) return false;
    const int64_t best = std::find(scores, scores + kWords, smallest) - scores;
    w.code[m] = static_cast<uint8_t>(best);
    cross = rest + 2.0f * overlaps[best];
    return true;
}

// Improves the code of one item, and leaves it where rounding alone made it seem better.
template <int kBytes>
CROSSBYTE_INLINE void improve_code(const Codebooks& books, const float* target, CrossPenalty penalty,
                                   const float* linear, int64_t max_sweeps, Workspace& w, uint8_t* old) {
    const int64_t M = books.n_codebooks;
    w.code.assign(old, old + M);
    float cross = cross_term(books, old);
    int64_t unchanged = 0;
    for (int64_t step = 0; step < max_sweeps * M && unchanged < M; ++step) {
        const int64_t m = step % M;
        unchanged = improve_one<kBytes>(books, penalty, m, linear + m * kWords, w, cross) ? 0 : unchanged + 1;
    }
    if (std::equal(w.code.begin(), w.code.end(), old)) return;
    const bool better =
        exact_objective(books, target, penalty, w.code.data()) < exact_objective(books, target, penalty, old);
    if (better) std::copy(w.code.begin(), w.code.end(), old);
}

template <int kBytes>
CROSSBYTE_INLINE void icm_body(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                               int64_t max_sweeps, uint8_t* codes) {
    Workspace w(books);
    const int64_t M = books.n_codebooks;
    for (int64_t first = 0; first < n; first += kItemsAtOnce) {
        const int64_t count = std::min(kItemsAtOnce, n - first);
        linear_terms_of<kBytes>(books, targets + first * books.n_dims, count, w);
        for (int64_t i = 0; i < count; ++i)
            improve_code<kBytes>(books, targets + (first + i) * books.n_dims, penalty,
                                 w.linear() + i * M * kWords, max_sweeps, w, codes + (first + i) * M);
    }
}

// Beam search. Nearly all of the thousands of scores of a step belong to words that no prefix keeps. So all
// of them are first computed roughly, in whole numbers of 16 bits, of which a register holds twice as many
// and whose products of words are half as long to read. How far such a number may be from the score is known,
// and so is a bound that the best scores cannot exceed; only what may lie below it is summed in float, in the
// one order, and ranked. Where numbers are too large or too far apart for this, everything is.

constexpr int64_t kStrip = 32,
                  kStrips = kWords / kStrip;  // of the eight words k, k + 32, ... a minimum is kept
constexpr int64_t kGroups = 4 * kStrip;       // of scores, when a bound is sought
constexpr int64_t kFew = 96;                  // keys that are cheaper ranked than sorted
constexpr int32_t kMostBooks = 512;           // whose products, rounded, are summed
constexpr float kFarthest = 14000.0f;         // in units; what is farther away counts as this far
constexpr int32_t kMostTrusted = 14000 - kRoughRange - kMostBooks;  // beyond, a score may be one of those
constexpr float kMostWrong = 500.0f, kSmallestUnit = 1e-30f, kLargest = 1e37f;
static_assert(2 * 14000 + kRoughRange + kMostBooks < 32767, "a rough score has 16 bits");

// What is kept while a step of one item is taken.
struct Step {
    std::vector<const int16_t*> rows;              // [M]: of rounded products
    std::vector<uint8_t> words;                    // [M, width]: of the next prefixes
    std::vector<uint32_t> places;                  // of the scores worth a look
    std::vector<uint64_t> keys;                    // of these
    alignas(64) int16_t linear[kWords];            // terms of a codebook, in units from the smallest one
    alignas(64) int16_t scores[kGroups * kWords];  // [width, K]: rough ones
    alignas(64) int16_t minima[kGroups * kStrip];  // [width, kStrip]
    Step(int64_t width, int64_t M)
        : rows(M), words(width * M), places(width * kWords + 1), keys(width * kWords) {}
};

// Prefixes of codes of one item, best first. An error leaves out the constant |t|^2.
struct Beam {
    int64_t width, size = 1;
    std::vector<float> errors;   // [width]
    std::vector<uint8_t> words;  // [M, width]: the m-th word of every prefix lies together
    Beam(int64_t w, int64_t M) : width(w), errors(w), words(w * M) {}
    void restart() {
        size = 1;
        errors[0] = 0.0f;
    }
};

// Rounds the linear terms of codebook m; returns by how many units a rough score may be wrong, infinity where
// rough scores would mean nothing.
template <int kBytes>
CROSSBYTE_INLINE float round_terms(const Codebooks& books, int64_t m, const float* linear, const Beam& beam,
                                   Step& step) {
    using Width = Lanes<kBytes>;
    using Floats = typename Width::Floats;
    constexpr int64_t kLanes = kBytes / sizeof(float);
    Floats low = Width::view(linear), high = low;
    for (int64_t k = kLanes; k < kWords; k += kLanes) {
        Width::keep_smaller(low, Width::view(linear + k));
        Width::keep_larger(high, Width::view(linear + k));
    }
    float smallest = low[0], largest = high[0];
    for (int64_t l = 1; l < kLanes; ++l) {
        smallest = std::min(smallest, low[l]);
        largest = std::max(largest, high[l]);
    }
    const float unit = books.units[m], scale = 1.0f / unit;
    const float first = beam.errors[0], last = beam.errors[beam.size - 1];
    const float size = std::max(std::abs(smallest), std::abs(largest)) +
                       std::max(std::abs(first), std::abs(last)) + kRoughRange * unit;
    if (!(unit >= kSmallestUnit && size <= kLargest)) return kInfinity;
    for (int64_t k = 0; k < kWords; ++k) {
        const float steps = (linear[k] - smallest) * scale;
        step.linear[k] =
            static_cast<int16_t>(static_cast<int32_t>((steps < kFarthest ? steps : kFarthest) + 0.5f));
    }
    // Half a unit for each rounded number, and what the sum in float may be wrong by itself.
    const float terms = static_cast<float>(m + 4);
    return 0.5f * terms + terms * size * scale * std::numeric_limits<float>::epsilon();
}

// Rough scores of one prefix with each word of codebook m behind it, and their minima.
template <int kBytes>
CROSSBYTE_INLINE void score_children(const Codebooks& books, int64_t m, int64_t b, const Beam& beam,
                                     Step& step) {
    using Width = Lanes<kBytes>;
    using Shorts = typename Width::Shorts;
    constexpr int64_t kLanes = kBytes / sizeof(int16_t);
    const int16_t** rows = step.rows.data();
    const int16_t* products = books.rough + m * (m - 1) / 2 * kWords * kWords;
    for (int64_t j = 0; j < m; ++j)
        rows[j] = products + (j * kWords + beam.words[j * beam.width + b]) * kWords;
    const float steps = (beam.errors[b] - beam.errors[0]) / books.units[m];
    const int16_t base = static_cast<int16_t>((steps < kFarthest ? steps : kFarthest) + 0.5f);
    for (int64_t lane = 0; lane < kStrip; lane += kLanes) {
        Shorts sums[kStrips];
#pragma GCC unroll 8
        for (int64_t s = 0; s < kStrips; ++s) sums[s] = base + Width::view(step.linear + s * kStrip + lane);
        for (int64_t j = 0; j < m; ++j)
#pragma GCC unroll 8
            for (int64_t s = 0; s < kStrips; ++s) sums[s] += Width::view(rows[j] + s * kStrip + lane);
        Shorts smallest = sums[0];
#pragma GCC unroll 8
        for (int64_t s = 0; s < kStrips; ++s) {
            Width::view(step.scores + b * kWords + s * kStrip + lane) = sums[s];
            Width::keep_smaller(smallest, sums[s]);
        }
        Width::view(step.minima + b * kStrip + lane) = smallest;
    }
}

// A rough score that at least `width` of them do not exceed, and few more, sought among the minima of groups
// of them; by halving an interval, since sorting would cost a dozen mispredicted branches. Strips change
// groups from prefix to prefix, since a good word is often good behind several. Beyond kMostTrusted there is
// none.
CROSSBYTE_INLINE int32_t first_bound(const Beam& beam, const Step& step, int32_t precision) {
    alignas(64) int16_t groups[kGroups];
    std::fill(groups, groups + kGroups, std::numeric_limits<int16_t>::max());
    for (int64_t b = 0; b < beam.size; ++b) {
        int16_t* group = groups + b * kStrip % kGroups;
        const int16_t* minima = step.minima + b * kStrip;
        for (int64_t l = 0; l < kStrip; ++l) group[l] = minima[l] < group[l] ? minima[l] : group[l];
    }
    const auto reaches = [&](int32_t bound) CROSSBYTE_INLINE_LAMBDA {
        int16_t count = 0;
        for (int64_t i = 0; i < kGroups; ++i) count = static_cast<int16_t>(count + (groups[i] <= bound));
        return count >= beam.width;
    };
    int32_t low = -kRoughRange - kMostBooks, high = kMostTrusted;
    if (!reaches(high)) return high + 1;
    while (high - low > precision) {
        const int32_t middle = low + (high - low) / 2;
        (reaches(middle) ? high : low) = middle;
    }
    return high;
}

// Bit l says whether values[l] <= bound.
CROSSBYTE_INLINE uint32_t at_most(const int16_t* values, int16_t bound) {
    uint32_t mask = 0;
#if defined(__SSE2__)
    const __m128i limit = _mm_set1_epi16(bound);
    for (int64_t half = 0; half < kStrip; half += 16) {
        const __m128i* words = reinterpret_cast<const __m128i*>(values + half);
        const __m128i more = _mm_packs_epi16(_mm_cmpgt_epi16(_mm_loadu_si128(words), limit),
                                             _mm_cmpgt_epi16(_mm_loadu_si128(words + 1), limit));
        mask |= (~static_cast<uint32_t>(_mm_movemask_epi8(more)) & 0xffffu) << half;
    }
#else
    for (int64_t l = 0; l < kStrip; ++l) mask |= static_cast<uint32_t>(values[l] <= bound) << l;
#endif
    return mask;
}

// Places of all rough scores up to the bound; returns how many. Here and in `select` plain pointers, because
// asserted subscripts of vectors would cost a tenth of the time of coding.
CROSSBYTE_INLINE int64_t collect(const Beam& beam, Step& step, int16_t bound) {
    uint32_t* places = step.places.data();
    int64_t count = 0;
    for (int64_t b = 0; b < beam.size; ++b) {
        uint32_t lanes = at_most(step.minima + b * kStrip, bound);
        for (; lanes != 0; lanes &= lanes - 1) {
            const int64_t first = b * kWords + __builtin_ctz(lanes);
            for (int64_t s = 0; s < kStrips; ++s) {
                const int64_t at = first + s * kStrip;
                places[count] = static_cast<uint32_t>(at);
                count += step.scores[at] <= bound;
            }
        }
    }
    return count;
}

// Of the collected places, those within the margin of the `width` best; in their order.
CROSSBYTE_INLINE int64_t narrow(int64_t width, Step& step, int64_t count, int32_t margin) {
    if (count <= width || count > kFew) return count;
    uint32_t* places = step.places.data();
    int16_t scores[kFew], ranks[kFew] = {};
    for (int64_t i = 0; i < count; ++i) scores[i] = step.scores[places[i]];
    for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < count; ++i)
            ranks[i] = static_cast<int16_t>(ranks[i] + (scores[j] < scores[i]));
    int16_t last = std::numeric_limits<int16_t>::min();
    for (int64_t i = 0; i < count; ++i) last = ranks[i] < width && scores[i] > last ? scores[i] : last;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
        places[kept] = places[i];
        kept += scores[i] <= last + margin;
    }
    return kept;
}

// Places that may be among the best, all of them where rough scores cannot tell; returns how many.
template <int kBytes>
CROSSBYTE_INLINE int64_t find_places(const Codebooks& books, int64_t m, const float* linear, const Beam& beam,
                                     Step& step) {
    const float wrong = m <= kMostBooks && beam.width <= kGroups
                            ? round_terms<kBytes>(books, m, linear, beam, step)
                            : kInfinity;
    if (wrong <= kMostWrong) {
        for (int64_t b = 0; b < beam.size; ++b) score_children<kBytes>(books, m, b, beam, step);
        const int32_t margin = static_cast<int32_t>(2.0f * wrong) + 1;
        const int32_t bound = first_bound(beam, step, margin);
        if (bound <= kMostTrusted)
            return narrow(beam.width, step, collect(beam, step, static_cast<int16_t>(bound + margin)),
                          margin);
    }
    std::iota(step.places.begin(), step.places.begin() + beam.size * kWords, 0u);
    return beam.size * kWords;
}

// Sums the scores at these places in float and makes keys of them; returns how many are numbers.
CROSSBYTE_INLINE int64_t sum_scores(const Codebooks& books, int64_t m, const float* linear, int64_t count,
                                    const Beam& beam, Step& step) {
    const uint32_t* places = step.places.data();
    const uint8_t* words = beam.words.data();
    const float* errors = beam.errors.data();
    uint64_t* keys = step.keys.data();
    int64_t kept = 0;
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t i = 0; i < count; ++i)  // they lie far apart
        for (int64_t j = 0; j < m; ++j) {
            const uint8_t word = words[j * beam.width + places[i] / kWords];
            __builtin_prefetch(gram_row(books, m, j, word) + places[i] % kWords);
        }
#endif
    for (int64_t i = 0; i < count; ++i) {
        const int64_t b = places[i] / kWords, k = places[i] % kWords;
        float sum = 0.0f;
        for (int64_t j = 0; j < m; ++j) sum += gram_row(books, m, j, words[j * beam.width + b])[k];
        const float score = errors[b] + (linear[k] + 2.0f * sum);
        keys[kept] = key_of(score, places[i]);
        kept += score <= kInfinity;
    }
    return kept;
}

// The `width` smallest keys, in order, to the front; returns how many there are.
CROSSBYTE_INLINE int64_t select(uint64_t* keys, int64_t count, int64_t width) {
    const int64_t kept = std::min(count, width);
    if (count > kFew) {
        std::partial_sort(keys, keys + kept, keys + count);
        return kept;
    }
    uint64_t ranks[kFew] = {}, ranked[kFew];
    for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < count; ++i) ranks[i] += keys[j] < keys[i];
    for (int64_t i = 0; i < count; ++i) ranked[ranks[i]] = keys[i];
    std::copy_n(ranked, kept, keys);
    return kept;
}

// Puts a word of codebook m behind the prefixes and keeps the best; ties keep the one that came first.
template <int kBytes>
CROSSBYTE_INLINE void extend(const Codebooks& books, int64_t m, const float* linear, Beam& beam, Step& step) {
    const int64_t worth = find_places<kBytes>(books, m, linear, beam, step);
    uint64_t* keys = step.keys.data();
    beam.size = select(keys, sum_scores(books, m, linear, worth, beam, step), beam.width);
    uint8_t* next = step.words.data();
    const uint8_t* words = beam.words.data();
    for (int64_t b = 0; b < beam.size; ++b) {
        const int64_t place = place_of(keys[b]), parent = place / kWords;
        for (int64_t j = 0; j < m; ++j) next[j * beam.width + b] = words[j * beam.width + parent];
        next[m * beam.width + b] = static_cast<uint8_t>(place % kWords);
        beam.errors[b] = value_of(keys[b]);
    }
    beam.words.swap(step.words);
}

// Of the finished codes, the one that is best with the penalty counted in.
CROSSBYTE_INLINE void best_finished(const Codebooks& books, CrossPenalty penalty, const Beam& beam,
                                    std::vector<uint8_t>& code, uint8_t* best) {
    const int64_t M = books.n_codebooks;
    double lowest = kInfinity;
    std::fill_n(best, M, uint8_t{0});  // for scores that overflowed, of which none is kept
    for (int64_t b = 0; b < beam.size; ++b) {
        if (penalty.weight >= 0.0 && beam.errors[b] >= lowest) break;  // errors rise, and a penalty only adds
        for (int64_t m = 0; m < M; ++m) code[m] = beam.words[m * beam.width + b];
        const double gap = cross_term(books, code.data()) - penalty.epsilon;
        const double score = beam.errors[b] + penalty.weight * gap * gap;
        if (!(score < lowest)) continue;
        lowest = score;
        std::copy(code.begin(), code.end(), best);
    }
}

template <int kBytes>
CROSSBYTE_INLINE void beam_search_body(const Codebooks& books, const float* targets, CrossPenalty penalty,
                                       int64_t n, BeamEffort effort, uint8_t* codes) {
    const int64_t M = books.n_codebooks, most = std::min(kItemsAtOnce, n);
    Workspace w(books);
    Step step(effort.width, M);
    std::vector<Beam> beams(most, Beam(effort.width, M));
    for (int64_t first = 0; first < n; first += most) {
        const int64_t count = std::min(most, n - first);
        linear_terms_of<kBytes>(books, targets + first * books.n_dims, count, w);
        for (int64_t m = 0; m < M; ++m)
            for (int64_t i = 0; i < count; ++i) {
                if (m == 0) beams[i].restart();
                if (beams[i].size > 0)
                    extend<kBytes>(books, m, w.linear() + (i * M + m) * kWords, beams[i], step);
            }
        for (int64_t i = 0; i < count; ++i) {
            uint8_t* code = codes + (first + i) * M;
            best_finished(books, penalty, beams[i], w.code, code);
            improve_code<kBytes>(books, targets + (first + i) * books.n_dims, penalty,
                                 w.linear() + i * M * kWords, effort.max_sweeps, w, code);
        }
    }
}

}  // namespace

CROSSBYTE_DISPATCH_WIDTHS(void, icm,
                          (const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                           int64_t max_sweeps, uint8_t* codes),
                          (books, targets, penalty, n, max_sweeps, codes))

CROSSBYTE_DISPATCH_WIDTHS(void, beam_search,
                          (const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                           BeamEffort effort, uint8_t* codes),
                          (books, targets, penalty, n, effort, codes))

}  // namespace crossbyte
