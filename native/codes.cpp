#include "codes.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dispatch.h"

namespace crossbyte {
namespace {

constexpr int64_t kLanes = 16;  // words judged together
constexpr int64_t kStrip = 64;  // words whose products stay in registers

// products[m, k] = target . word(m, k), summed over the dimensions in order.
CROSSBYTE_INLINE void word_products(const Codebooks& books, const float* target, float* products) {
    constexpr int64_t kParts = kStrip / kFloats;
    for (int64_t at = 0; at < books.n_codebooks * kWords; at += kStrip) {
        const float* words = books.words_by_dim + (at / kWords) * books.n_dims * kWords + at % kWords;
        Floats8 sums[kParts] = {};
        for (int64_t j = 0; j < books.n_dims; ++j) {
            const float t = target[j];
#pragma GCC unroll 8
            for (int64_t p = 0; p < kParts; ++p) sums[p] += t * view8(words + j * kWords + p * kFloats);
        }
        for (int64_t p = 0; p < kParts; ++p) view8(products + at + p * kFloats) = sums[p];
    }
}

CROSSBYTE_INLINE const float* gram_row(const Codebooks& books, int64_t m, uint8_t code) {
    return books.gram + (m * kWords + code) * books.n_codebooks * kWords;
}

CROSSBYTE_INLINE float square_norm(const Codebooks& books, int64_t m, int64_t k) {
    return gram_row(books, m, static_cast<uint8_t>(k))[m * kWords + k];
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

CROSSBYTE_INLINE int64_t first_smallest(const float* scores) {
    float smallest[kLanes];
    std::copy(scores, scores + kLanes, smallest);
    for (int64_t k = kLanes; k < kWords; k += kLanes)
        for (int64_t l = 0; l < kLanes; ++l)
            smallest[l] = scores[k + l] < smallest[l] ? scores[k + l] : smallest[l];
    const float value = *std::min_element(smallest, smallest + kLanes);
    return std::find(scores, scores + kWords, value) - scores;
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
    std::vector<float> products, norms, overlaps, scores;
    explicit Workspace(const Codebooks& books)
        : products(books.n_codebooks * kWords),
          norms(books.n_codebooks * kWords),
          overlaps(kWords),
          scores(kWords) {
        for (int64_t m = 0; m < books.n_codebooks; ++m)
            for (int64_t k = 0; k < kWords; ++k) norms[m * kWords + k] = square_norm(books, m, k);
    }
};

// Replaces the word of codebook m by the best one with all others fixed; true if it changed.
CROSSBYTE_INLINE bool improve_one(const Codebooks& books, CrossPenalty penalty, int64_t m, Workspace& w,
                                  float& cross, uint8_t* code) {
    overlaps_with(books, code, m, books.n_codebooks, w.overlaps.data());
    const float rest = cross - 2.0f * w.overlaps[code[m]];
    const float mu = static_cast<float>(penalty.weight), eps = static_cast<float>(penalty.epsilon);
    const float* __restrict products = w.products.data() + m * kWords;
    const float* __restrict norms = w.norms.data() + m * kWords;
    const float* __restrict overlaps = w.overlaps.data();
    float* __restrict scores = w.scores.data();
    for (int64_t k = 0; k < kWords; ++k) {
        const float gap = rest + 2.0f * overlaps[k] - eps;
        scores[k] = norms[k] - 2.0f * products[k] + 2.0f * overlaps[k] + mu * gap * gap;
    }
    const int64_t best = first_smallest(scores);
    if (!(scores[best] < scores[code[m]])) return false;
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
        word_products(books, target, w.products.data());
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

// A prefix of a code: the words chosen so far. `error` leaves out the constant |t|^2.
struct Prefix {
    float error;
    int32_t parent;
    uint8_t word;
};

// The `width` best prefixes, best first; ties keep the one that came first.
struct Shortlist {
    std::vector<Prefix> items;
    size_t width;
    explicit Shortlist(int64_t w) : width(static_cast<size_t>(w)) { items.reserve(width + 1); }
    CROSSBYTE_INLINE float threshold() const {
        return items.size() < width ? std::numeric_limits<float>::infinity() : items.back().error;
    }
    CROSSBYTE_INLINE void offer(const Prefix& p) {
        auto at = items.end();
        while (at != items.begin() && p.error < (at - 1)->error) --at;
        items.insert(at, p);
        if (items.size() > width) items.pop_back();
    }
    CROSSBYTE_INLINE void offer_all(const float* errors, int32_t parent) {
        for (int64_t k = 0; k < kWords; k += kLanes) {
            const float limit = threshold();
            int any = 0;
            for (int64_t l = 0; l < kLanes; ++l) any |= errors[k + l] < limit;
            if (!any) continue;
            for (int64_t l = 0; l < kLanes; ++l)
                if (errors[k + l] < threshold()) offer({errors[k + l], parent, static_cast<uint8_t>(k + l)});
        }
    }
};

struct Beam {
    std::vector<uint8_t> codes, next_codes;  // [width, M]
    std::vector<float> errors;               // [width]
    Shortlist shortlist;
    int64_t size = 1;
    Beam(int64_t width, int64_t M)
        : codes(width * M), next_codes(width * M), errors(width), shortlist(width) {}
};

CROSSBYTE_INLINE void extend(const Codebooks& books, int64_t m, Workspace& w, Beam& beam) {
    const int64_t M = books.n_codebooks;
    const float* __restrict products = w.products.data() + m * kWords;
    const float* __restrict norms = w.norms.data() + m * kWords;
    beam.shortlist.items.clear();
    for (int64_t b = 0; b < beam.size; ++b) {
        overlaps_with(books, beam.codes.data() + b * M, m, m, w.overlaps.data());
        const float* __restrict overlaps = w.overlaps.data();
        float* __restrict scores = w.scores.data();
        const float base = beam.errors[b];
        for (int64_t k = 0; k < kWords; ++k)
            scores[k] = base + (norms[k] - 2.0f * products[k] + 2.0f * overlaps[k]);
        beam.shortlist.offer_all(scores, static_cast<int32_t>(b));
    }
    beam.size = static_cast<int64_t>(beam.shortlist.items.size());
    for (int64_t b = 0; b < beam.size; ++b) {
        const Prefix& p = beam.shortlist.items[b];
        std::copy_n(beam.codes.data() + p.parent * M, m, beam.next_codes.data() + b * M);
        beam.next_codes[b * M + m] = p.word;
        beam.errors[b] = p.error;
    }
    beam.codes.swap(beam.next_codes);
}

// Of the finished codes, the one that is best with the penalty counted in.
CROSSBYTE_INLINE const uint8_t* best_finished(const Codebooks& books, CrossPenalty penalty,
                                              const Beam& beam) {
    const uint8_t* best = beam.codes.data();
    double lowest = std::numeric_limits<double>::infinity();
    for (int64_t b = 0; b < beam.size; ++b) {
        const uint8_t* code = beam.codes.data() + b * books.n_codebooks;
        const double gap = cross_term(books, code) - penalty.epsilon;
        const double score = beam.errors[b] + penalty.weight * gap * gap;
        if (score < lowest) {
            lowest = score;
            best = code;
        }
    }
    return best;
}

CROSSBYTE_INLINE void beam_search_body(const Codebooks& books, const float* targets, CrossPenalty penalty,
                                       int64_t n, int64_t width, uint8_t* codes) {
    Workspace w(books);
    Beam beam(width, books.n_codebooks);
    for (int64_t i = 0; i < n; ++i) {
        word_products(books, targets + i * books.n_dims, w.products.data());
        beam.size = 1;
        beam.errors[0] = 0.0f;
        for (int64_t m = 0; m < books.n_codebooks; ++m) extend(books, m, w, beam);
        std::copy_n(best_finished(books, penalty, beam), books.n_codebooks, codes + i * books.n_codebooks);
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
