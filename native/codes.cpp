#include "codes.h"

#include <algorithm>
#include <limits>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dispatch.h"
#include "order.h"

namespace crossbyte {
namespace {

constexpr int64_t kLanes = 16, kStrip = 64;  // words judged together; words with products in registers
constexpr float kInfinity = std::numeric_limits<float>::infinity();

CROSSBYTE_INLINE const float* gram_row(const Codebooks& books, int64_t m, uint8_t code) {
    return books.gram + (m * kWords + code) * books.n_codebooks * kWords;
}

// Sum over ordered pairs i != j of the inner products of the chosen words.
CROSSBYTE_INLINE float cross_term(const Codebooks& books, const uint8_t* code) {
    float sum = 0.0f;
    for (int64_t i = 0; i < books.n_codebooks; ++i)
        for (int64_t j = 0; j < i; ++j) sum += gram_row(books, i, code[i])[j * kWords + code[j]];
    return 2.0f * sum;
}

// overlaps[k] = sum over the other codebooks of <their word, word(m, k)>.
CROSSBYTE_INLINE void overlaps_with(const Codebooks& books, const uint8_t* code, int64_t m, int64_t until,
                                    float* __restrict overlaps) {
    std::fill(overlaps, overlaps + kWords, 0.0f);
    for (int64_t j = 0; j < until; ++j) {
        if (j == m) continue;
        const float* __restrict row = gram_row(books, j, code[j]) + m * kWords;
        for (int64_t k = 0; k < kWords; ++k) overlaps[k] += row[k];
    }
}

// The smallest of the scores that are numbers; infinity where none is.
CROSSBYTE_INLINE float smallest_of(const float* scores) {
    float smallest[kLanes];
    std::fill(smallest, smallest + kLanes, kInfinity);
    for (int64_t k = 0; k < kWords; k += kLanes)
        for (int64_t l = 0; l < kLanes; ++l)
            smallest[l] = scores[k + l] < smallest[l] ? scores[k + l] : smallest[l];
    return *std::min_element(smallest, smallest + kLanes);
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

struct Workspace {
    std::vector<float> linear, norms, overlaps, scores;
    explicit Workspace(const Codebooks& books)
        : linear(books.n_codebooks * kWords),
          norms(books.n_codebooks * kWords),
          overlaps(kWords),
          scores(kWords) {
        for (int64_t m = 0; m < books.n_codebooks; ++m)
            for (int64_t k = 0; k < kWords; ++k)
                norms[m * kWords + k] = gram_row(books, m, static_cast<uint8_t>(k))[m * kWords + k];
    }
};

// linear[m, k] = |word(m, k)|^2 - 2 target . word(m, k), the product summed over the dimensions in order.
CROSSBYTE_INLINE void linear_terms(const Codebooks& books, const float* target, Workspace& w) {
    constexpr int64_t kParts = kStrip / kFloats;
    for (int64_t at = 0; at < books.n_codebooks * kWords; at += kStrip) {
        const float* words = books.words_by_dim + (at / kWords) * books.n_dims * kWords + at % kWords;
        Floats8 sums[kParts] = {};
        for (int64_t j = 0; j < books.n_dims; ++j) {
            const float t = target[j];
#pragma GCC unroll 8
            for (int64_t p = 0; p < kParts; ++p) sums[p] += t * view8(words + j * kWords + p * kFloats);
        }
        for (int64_t p = 0; p < kParts; ++p)
            view8(w.linear.data() + at + p * kFloats) =
                view8(w.norms.data() + at + p * kFloats) - 2.0f * sums[p];
    }
}

// Replaces the word of codebook m by the best one with all others fixed; true if it changed.
CROSSBYTE_INLINE bool improve_one(const Codebooks& books, CrossPenalty penalty, int64_t m, Workspace& w,
                                  float& cross, uint8_t* code) {
    overlaps_with(books, code, m, books.n_codebooks, w.overlaps.data());
    const float rest = cross - 2.0f * w.overlaps[code[m]];
    const float mu = static_cast<float>(penalty.weight), eps = static_cast<float>(penalty.epsilon);
    const float* __restrict linear = w.linear.data() + m * kWords;
    const float* __restrict overlaps = w.overlaps.data();
    float* __restrict scores = w.scores.data();
    for (int64_t k = 0; k < kWords; ++k) {
        const float gap = rest + 2.0f * overlaps[k] - eps;
        scores[k] = linear[k] + 2.0f * overlaps[k] + mu * gap * gap;
    }
    // Scores that overflowed may all be NaN; only one that is less than another is sure to be found again.
    const float smallest = smallest_of(scores);
    if (!(smallest < scores[code[m]])) return false;
    const int64_t best = std::find(scores, scores + kWords, smallest) - scores;
    code[m] = static_cast<uint8_t>(best);
    cross = rest + 2.0f * overlaps[best];
    return true;
}

CROSSBYTE_INLINE void icm_body(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                               int64_t max_sweeps, uint8_t* codes) {
    Workspace w(books);
    const int64_t M = books.n_codebooks;
    std::vector<uint8_t> code(M);
    for (int64_t i = 0; i < n; ++i) {
        const float* target = targets + i * books.n_dims;
        uint8_t* old = codes + i * M;
        linear_terms(books, target, w);
        code.assign(old, old + M);
        float cross = cross_term(books, code.data());
        int64_t unchanged = 0;
        for (int64_t step = 0; step < max_sweeps * M && unchanged < M; ++step)
            unchanged = improve_one(books, penalty, step % M, w, cross, code.data()) ? 0 : unchanged + 1;
        if (std::equal(code.begin(), code.end(), old)) continue;
        const bool better = exact_objective(books, target, penalty, code.data()) <
                            exact_objective(books, target, penalty, old);
        if (better) std::copy(code.begin(), code.end(), old);
    }
}

// Beam search. Most of its time would go into keeping the best few of thousands of scores, one mispredicted
// branch after the other. So all scores of a codebook are computed first, then a bound is found that hardly
// more than `width` of them stay below, and only those are sorted.

// Words whose scores are looked at together; of each strip eight minima are kept, one per lane.
constexpr int64_t kStripWords = 32, kStripParts = kStripWords / kFloats, kStrips = kWords / kStripWords;
constexpr int64_t kGroups = kStrips * kFloats;  // of scores, when a first bound is sought
constexpr int64_t kFew = 96;                    // keys that are cheaper ranked than sorted

CROSSBYTE_INLINE void keep_smaller(Floats8& kept, const Floats8& other) {
    kept = other < kept ? other : kept;
}

// Prefixes of codes, best first. An error leaves out the constant |t|^2.
struct Beam {
    int64_t width, size = 1;
    std::vector<float> errors;               // [width]
    std::vector<uint8_t> words, next_words;  // [M, width]: the m-th word of every prefix lies together
    std::vector<float> scores;               // [width, K]: errors of all prefixes with one more word
    std::vector<float> minima;               // [width, kStrips, 8]: of words l, l + 8, l + 16, l + 24
    std::vector<uint64_t> keys;              // of the scores worth a look
    Beam(int64_t w, int64_t M)
        : width(w),
          errors(w),
          words(w * M),
          next_words(w * M),
          scores(w * kWords),
          minima(w * kGroups),
          keys(w * kWords + 1) {}
};

// Scores of one prefix with each word of codebook m behind it, and their minima.
CROSSBYTE_INLINE void score_children(const Codebooks& books, int64_t m, const float* linear, int64_t b,
                                     Beam& beam, const float** rows) {
    for (int64_t j = 0; j < m; ++j) rows[j] = gram_row(books, j, beam.words[j * beam.width + b]) + m * kWords;
    const float base = beam.errors[b];
    for (int64_t strip = 0; strip < kStrips; ++strip) {
        const int64_t at = strip * kStripWords;
        Floats8 sums[kStripParts] = {};
        for (int64_t j = 0; j < m; ++j)
#pragma GCC unroll 4
            for (int64_t p = 0; p < kStripParts; ++p) sums[p] += view8(rows[j] + at + p * kFloats);
        Floats8 smallest = Floats8{} + kInfinity;
#pragma GCC unroll 4
        for (int64_t p = 0; p < kStripParts; ++p) {
            const Floats8 score = base + (view8(linear + at + p * kFloats) + 2.0f * sums[p]);
            view8(beam.scores.data() + b * kWords + at + p * kFloats) = score;
            keep_smaller(smallest, score);
        }
        view8(beam.minima.data() + (b * kStrips + strip) * kFloats) = smallest;
    }
}

// Bit l says whether values[l] <= bound.
CROSSBYTE_INLINE unsigned at_most(const float* values, float bound) {
#if defined(__SSE2__)
    const __m128 limit = _mm_set1_ps(bound);
    const int low = _mm_movemask_ps(_mm_cmple_ps(_mm_loadu_ps(values), limit));
    const int high = _mm_movemask_ps(_mm_cmple_ps(_mm_loadu_ps(values + 4), limit));
    return static_cast<unsigned>(low | high << 4);
#else
    unsigned mask = 0;
    for (unsigned l = 0; l < kFloats; ++l) mask |= static_cast<unsigned>(values[l] <= bound) << l;
    return mask;
#endif
}

// A value that at least `wanted` of the groups' minima do not exceed, and few more: by halving an interval,
// since sorting would cost a dozen mispredicted branches.
CROSSBYTE_INLINE float rough_quantile(const float* groups, int64_t wanted) {
    Floats8 smallest = view8(groups), largest = smallest;
    for (int64_t i = kFloats; i < kGroups; i += kFloats) {
        const Floats8& group = view8(groups + i);
        smallest = group < smallest ? group : smallest;
        largest = group > largest ? group : largest;
    }
    float low = smallest[0], high = largest[0];
    for (int64_t l = 1; l < kFloats; ++l) {
        low = std::min(low, smallest[l]);
        high = std::max(high, largest[l]);
    }
    for (int step = 0; step < 7; ++step) {
        const float middle = 0.5f * low + 0.5f * high;
        int32_t count = 0;
        for (int64_t i = 0; i < kGroups; ++i) count += groups[i] <= middle;
        (count >= wanted ? high : low) = middle;
    }
    return high;
}

// A value that at least `width` scores do not exceed, sought among the minima of 64 groups of scores.
// Strips change groups from prefix to prefix, since a good word is often good behind several.
CROSSBYTE_INLINE float first_bound(const Beam& beam) {
    if (beam.width > kGroups) return kInfinity;
    float groups[kGroups];
    std::copy_n(beam.minima.data(), kGroups, groups);
    for (int64_t b = 1; b < beam.size; ++b)
        for (int64_t strip = 0; strip < kStrips; ++strip)
            keep_smaller(view8(groups + (b + strip) % kStrips * kFloats),
                         view8(beam.minima.data() + (b * kStrips + strip) * kFloats));
    return rough_quantile(groups, beam.width);
}

// Keys of all scores up to the bound; returns how many. Here and in `select` plain pointers, because asserted
// subscripts of vectors would cost a tenth of the time of coding.
CROSSBYTE_INLINE int64_t collect(Beam& beam, float bound) {
    const float* scores = beam.scores.data();
    uint64_t* keys = beam.keys.data();
    int64_t count = 0;
    for (int64_t strip = 0; strip < beam.size * kStrips; ++strip) {
        unsigned lanes = at_most(beam.minima.data() + strip * kFloats, bound);
        for (; lanes != 0; lanes &= lanes - 1) {
            const int64_t first = strip * kStripWords + __builtin_ctz(lanes);
            for (int64_t p = 0; p < kStripParts; ++p) {
                const int64_t at = first + p * kFloats;
                keys[count] = key_of(scores[at], at);
                count += scores[at] <= bound;
            }
        }
    }
    return count;
}

// The `width` smallest keys, in order, to the front; returns how many there are.
CROSSBYTE_INLINE int64_t select(uint64_t* keys, int64_t count, int64_t width) {
    const int64_t kept = std::min(count, width);
    if (count > kFew) {
        std::partial_sort(keys, keys + kept, keys + count);
        return kept;
    }
    uint64_t ranked[kFew];
    for (int64_t i = 0; i < count; ++i) {
        int64_t rank = 0;
        for (int64_t j = 0; j < count; ++j) rank += keys[j] < keys[i];
        ranked[rank] = keys[i];
    }
    std::copy_n(ranked, kept, keys);
    return kept;
}

// Puts a word of codebook m behind the prefixes and keeps the best; ties keep the one that came first.
CROSSBYTE_INLINE void extend(const Codebooks& books, int64_t m, const float* linear, Beam& beam,
                             const float** rows) {
    for (int64_t b = 0; b < beam.size; ++b) score_children(books, m, linear, b, beam, rows);
    beam.size = select(beam.keys.data(), collect(beam, first_bound(beam)), beam.width);
    for (int64_t b = 0; b < beam.size; ++b) {
        const int64_t place = place_of(beam.keys[b]), parent = place / kWords;
        for (int64_t j = 0; j < m; ++j)
            beam.next_words[j * beam.width + b] = beam.words[j * beam.width + parent];
        beam.next_words[m * beam.width + b] = static_cast<uint8_t>(place % kWords);
        beam.errors[b] = beam.scores[place];
    }
    beam.words.swap(beam.next_words);
}

// Of the finished codes, the one that is best with the penalty counted in.
CROSSBYTE_INLINE void best_finished(const Codebooks& books, CrossPenalty penalty, const Beam& beam,
                                    std::vector<uint8_t>& code, uint8_t* best) {
    const int64_t M = books.n_codebooks;
    double lowest = kInfinity;
    std::fill_n(best, M, uint8_t{0});  // for scores that overflowed, of which none is kept
    for (int64_t b = 0; b < beam.size; ++b) {
        for (int64_t m = 0; m < M; ++m) code[m] = beam.words[m * beam.width + b];
        const double gap = cross_term(books, code.data()) - penalty.epsilon;
        const double score = beam.errors[b] + penalty.weight * gap * gap;
        if (!(score < lowest)) continue;
        lowest = score;
        std::copy(code.begin(), code.end(), best);
    }
}

CROSSBYTE_INLINE void beam_search_body(const Codebooks& books, const float* targets, CrossPenalty penalty,
                                       int64_t n, int64_t width, uint8_t* codes) {
    const int64_t M = books.n_codebooks;
    Workspace w(books);
    Beam beam(width, M);
    std::vector<const float*> rows(M);
    std::vector<uint8_t> code(M);
    for (int64_t i = 0; i < n; ++i) {
        linear_terms(books, targets + i * books.n_dims, w);
        beam.size = 1;
        beam.errors[0] = 0.0f;
        for (int64_t m = 0; m < M; ++m) extend(books, m, w.linear.data() + m * kWords, beam, rows.data());
        best_finished(books, penalty, beam, code, codes + i * M);
    }
}

}  // namespace

CROSSBYTE_DISPATCH(void, icm,
                   (const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                    int64_t max_sweeps, uint8_t* codes),
                   (books, targets, penalty, n, max_sweeps, codes))

CROSSBYTE_DISPATCH(void, beam_search,
                   (const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                    int64_t width, uint8_t* codes),
                   (books, targets, penalty, n, width, codes))

}  // namespace crossbyte
