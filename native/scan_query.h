// One query while it is scanned: its best items so far, its exact distances, and the scale of its bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "codes.h"
#include "dispatch.h"
#include "order.h"
#include "scan.h"
#include "scan_bounds.h"

namespace crossbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLargestSum = 1e38;  // of sizes: then no sum, and no difference of two, overflows in float

// The k nearest of what was offered. Keeps some more, and selects seldom.
class TopK {
  public:
    // `ascending`: rows are offered in ascending order, so that a later one never displaces an equal
    // distance.
    TopK(int64_t k, float max_distance, bool ascending)
        : k_(static_cast<size_t>(k)),
          capacity_(k_ + std::max<size_t>(k_ / 2, 64)),
          limit_(max_distance),
          ascending_(ascending) {}

    float limit() const { return std::min(limit_, assumed_); }  // the largest distance that still matters

    void offer(float distance, int64_t row) {
        if (!(distance <= limit())) return;
        keys_.push_back(key_of(distance, row));
        if (keys_.size() >= capacity_) shrink();
    }
    void shrink() {
        if (keys_.size() < k_) return;
        const auto farthest = keys_.begin() + static_cast<int64_t>(k_) - 1;
        std::nth_element(keys_.begin(), farthest, keys_.end());
        limit_ = value_of(*farthest);
        if (ascending_) limit_ = std::nextafter(limit_, -kInfinity);
        keys_.resize(k_);
    }
    const std::vector<uint64_t>& keys() {
        shrink();
        return keys_;
    }

    // Assumes that no more is needed than what is as near as the nearest so far, once a `share` of all rows
    // was seen: the `recent` ones from row `since` on, and others. So it is, but for one case in a thousand,
    // where rows lie in no order; where the nearest lie among the recent or among the others, nothing is
    // assumed.
    void assume(double share, double recent, int64_t since) {
        std::vector<uint64_t> near;
        for (const uint64_t key : keys_)
            if (value_of(key) <= limit()) near.push_back(key);
        const double n = static_cast<double>(near.size()), k = static_cast<double>(k_);
        const auto late =
            std::count_if(near.begin(), near.end(), [&](uint64_t key) { return place_of(key) >= since; });
        if (std::fabs(static_cast<double>(late) - n * recent) >
            kSigmas * std::sqrt(n * recent * (1.0 - recent)))
            return;
        const double rank = k * share + kSigmas * std::sqrt(k * share) + kSigmas;
        if (rank >= std::min(n, k)) return;
        const auto last = near.begin() + static_cast<int64_t>(rank);
        std::nth_element(near.begin(), last, near.end());
        assumed_ = value_of(*last);
    }
    // Whether what was assumed is true: everything as near was kept, and it is enough.
    bool is_complete() const {
        const auto near = [&](uint64_t key) { return value_of(key) <= assumed_; };
        return assumed_ == kInfinity ||
               std::count_if(keys_.begin(), keys_.end(), near) >= static_cast<int64_t>(k_);
    }
    // Begins anew, with the limit that is known.
    void restart() {
        if (keys_.size() >= k_) {
            const auto farthest = keys_.begin() + static_cast<int64_t>(k_) - 1;
            std::nth_element(keys_.begin(), farthest, keys_.end());
            limit_ = value_of(*farthest);
        }
        keys_.clear();
        assumed_ = kInfinity;
    }

  private:
    static constexpr double kSigmas = 3.0;

    size_t k_, capacity_;
    float limit_, assumed_ = kInfinity;
    bool ascending_;
    std::vector<uint64_t> keys_;
};

CROSSBYTE_INLINE float side_distance(const Source& source, int64_t query, int64_t row) {
    const int64_t M = source.n_codebooks;
    const float* table = source.tables + query * M * kWords;
    const uint8_t* code = source.codes + (row / kBlock) * M * kBlock + row % kBlock;
    float sum = table[code[0]];
    for (int64_t m = 1; m < M; ++m) sum += table[m * kWords + code[m * kBlock]];
    return sum + source.offsets[query];
}

CROSSBYTE_INLINE float exact_distance(const ScanJob& job, int64_t query, int64_t row) {
    const float first = side_distance(job.sources[0], query, row);
    if (job.sources.size() == 1) return first + job.extra;
    return first + side_distance(job.sources[1], query, row) + job.extra;
}

// The same sums for several items of the blocks from `first` on, four at a time, because one sum waits for
// each of its additions.
CROSSBYTE_INLINE void exact_distances(const ScanJob& job, int64_t query, int64_t first, const uint16_t* items,
                                      int64_t n, float* distances) {
    constexpr int64_t kTogether = 4;
    int64_t i = 0;
    for (; i + kTogether <= n; i += kTogether) {
        float* totals = distances + i;
        for (size_t s = 0; s < job.sources.size(); ++s) {
            const Source& source = job.sources[s];
            const int64_t M = source.n_codebooks;
            const float* table = source.tables + query * M * kWords;
            const uint8_t* codes[kTogether];
            float sums[kTogether];
            for (int64_t j = 0; j < kTogether; ++j) {
                const int64_t item = items[i + j];
                codes[j] = source.codes + (first + item / kBlock) * M * kBlock + item % kBlock;
                sums[j] = table[*codes[j]];
            }
            for (int64_t m = 1; m < M; ++m) {
                table += kWords;
                for (int64_t j = 0; j < kTogether; ++j) sums[j] += table[codes[j][m * kBlock]];
            }
            for (int64_t j = 0; j < kTogether; ++j) {
                sums[j] += source.offsets[query];
                totals[j] = s == 0 ? sums[j] : totals[j] + sums[j];
            }
        }
        for (int64_t j = 0; j < kTogether; ++j) totals[j] += job.extra;
    }
    for (; i < n; ++i) distances[i] = exact_distance(job, query, first * kBlock + items[i]);
}

// Rounds a table down: bytes[c] <= (table[c] - lowest) * steps, at most 255. The factor outweighs the
// rounding of these float operations.
CROSSBYTE_INLINE void round_down_body(const float* table, float lowest, float steps, uint8_t* bytes) {
    for (int64_t c = 0; c < kWords; ++c) {
        const float value = (table[c] - lowest) * steps * (1.0f - 1e-6f);
        bytes[c] = static_cast<uint8_t>(static_cast<int32_t>(value < 255.0f ? value : 255.0f));
    }
}
CROSSBYTE_DISPATCH(void, round_down, (const float* table, float lowest, float steps, uint8_t* bytes),
                   (table, lowest, steps, bytes))

struct Range {
    float lowest, largest;  // the smallest entry; the largest absolute value
    bool finite;            // whether all entries are
};

CROSSBYTE_INLINE Range range_of_body(const float* table) {
    float low[kFloats * 2], high[kFloats * 2], zero[kFloats * 2] = {};
    for (int64_t l = 0; l < kFloats * 2; ++l) low[l] = high[l] = table[l];
    for (int64_t c = 0; c < kWords; c += kFloats * 2)
        for (int64_t l = 0; l < kFloats * 2; ++l) {
            low[l] = table[c + l] < low[l] ? table[c + l] : low[l];
            high[l] = table[c + l] > high[l] ? table[c + l] : high[l];
            zero[l] += table[c + l] - table[c + l];  // NaN as soon as one entry is not finite
        }
    const float lowest = *std::min_element(low, low + kFloats * 2);
    const float highest = *std::max_element(high, high + kFloats * 2);
    const bool finite = std::all_of(zero, zero + kFloats * 2, [](float each) { return each == 0.0f; });
    return {lowest, std::max(std::fabs(lowest), std::fabs(highest)), finite};
}
CROSSBYTE_DISPATCH(Range, range_of, (const float* table), (table))

// A query while it is scanned: its best items so far, and the scale of its bounds.
struct Query {
    int64_t number;
    TopK best;
    std::vector<const float*> tables;  // of all sources in order
    std::vector<float> lowest;         // the smallest entry of each table
    double base = 0.0;                 // the smallest distance that the tables could give
    double error = 0.0;                // largest rounding error of the canonical sum
    float steps = 0.0f;                // bytes per unit of distance; 0: all bounds are zero
    bool bounded = false;              // whether bounds can be trusted: nothing is infinite, NaN or overflows

    Query(const ScanJob& job, int64_t q, bool ascending = true)
        : number(q), best(job.k, job.max_distance, ascending) {
        double largest = std::fabs(static_cast<double>(job.extra));
        bool finite = true;
        base = job.extra;
        for (const Source& source : job.sources) {
            for (int64_t m = 0; m < source.n_codebooks; ++m) {
                tables.push_back(source.tables + (q * source.n_codebooks + m) * kWords);
                const Range range = range_of(tables.back());
                lowest.push_back(range.lowest);
                finite = finite && range.finite;
                base += range.lowest;
                largest += range.largest;
            }
            base += source.offsets[q];
            largest += std::fabs(source.offsets[q]);
        }
        bounded = finite && largest < kLargestSum;
        const double unit = 1.2e-7;  // a little more than the relative error of one float operation
        error = static_cast<double>(tables.size() + 4) * unit * largest;
    }

    double span() const { return static_cast<double>(best.limit()) + error - base; }

    // Chooses the steps for the current limit; none while there is no limit, or where float cannot hold them.
    void rescale() {
        best.shrink();
        const float wanted = static_cast<float>(254.0 / span());
        steps = bounded && std::isnormal(wanted) && wanted > 0.0f ? wanted : 0.0f;
    }
    // The largest sum of bytes that an item of interest can have.
    uint8_t threshold() const {
        if (steps == 0.0f) return 254;
        return static_cast<uint8_t>(std::clamp(span() * steps * (1.0 + 1e-9), 0.0, 254.0));
    }
    // Without steps, every item is looked at.
    void table_bytes(size_t m, uint8_t* bytes) const {
        if (steps == 0.0f)
            std::fill(bytes, bytes + kWords, uint8_t{0});
        else
            round_down(tables[m], lowest[m], steps, bytes);
    }
};

// Bytes that begin at a cache line: an entry of 64 across two of them would take two loads.
class Lines {
  public:
    Lines(size_t size, uint8_t value) : held_(size + kLine - 1, value) {
        const auto address = reinterpret_cast<uintptr_t>(held_.data());
        begin_ = held_.data() + (kLine - address % kLine) % kLine;
    }
    uint8_t* data() { return begin_; }

  private:
    static constexpr size_t kLine = 64;
    std::vector<uint8_t> held_;
    uint8_t* begin_;
};

// What a microsecond of look-ups is worth in bytes of doubt, summed over 256 words: the fewer of the items
// that were looked up had to be summed up, the more. Measured on trained codebooks.
constexpr int64_t kUsualPrice = 50;

CROSSBYTE_INLINE int64_t price_of(int64_t n_items, int64_t n_summed) {
    return std::clamp<int64_t>(n_items / std::max<int64_t>(n_summed, 1), 40, 100);
}

// The prefixes of one codebook: of 4 to 8 high bits, those whose look-ups cost least together with what they
// leave in doubt, which is how far the smallest byte of a prefix lies below the others. Returns the bits, and
// puts the smallest byte of each prefix into `prefixes` (room for 256).
CROSSBYTE_INLINE uint8_t choose_prefixes_body(const uint8_t* bytes, int64_t price, uint8_t* prefixes) {
    // Only the time of a scan depends on these and on the price.
    constexpr int64_t kCosts[] = {15, 19, 31, 61, 140};  // microseconds for a million look-ups by 4 to 8 bits
    uint8_t smallest[2 * kWords];                        // of 8 bits, 7 bits ... 4 bits, one after the other
    std::copy(bytes, bytes + kWords, smallest);
    int64_t total = 0;
    for (int64_t c = 0; c < kWords; ++c) total += bytes[c];
    const uint8_t *at = smallest, *best = smallest;
    uint8_t best_bits = 8;
    int64_t least = price * kCosts[4];
    for (uint8_t bits = 7; bits >= 4; --bits) {
        const int64_t n = int64_t{1} << bits;
        uint8_t* next = smallest + 2 * kWords - 2 * n;
        int64_t sum = 0;
        for (int64_t p = 0; p < n; ++p) {
            next[p] = std::min(at[2 * p], at[2 * p + 1]);
            sum += next[p];
        }
        at = next;
        const int64_t cost = price * kCosts[bits - 4] + total - sum * (kWords / n);
        if (cost <= least) least = cost, best = next, best_bits = bits;
    }
    std::copy(best, best + (int64_t{1} << best_bits), prefixes);
    return best_bits;
}
CROSSBYTE_DISPATCH(uint8_t, choose_prefixes, (const uint8_t* bytes, int64_t price, uint8_t* prefixes),
                   (bytes, price, prefixes))

// The tables of one query as bytes, for blocks of items.
class ItemBounds {
  public:
    explicit ItemBounds(const Query& query)
        : n_tables_(query.tables.size()),
          bytes_(n_tables_ * kWords, 0),
          prefixes_(n_tables_ * kWords, 0),
          bits_(n_tables_, 4) {}

    // Chooses the steps anew.
    void rescale(Query& query, int64_t price = kUsualPrice) {
        query.rescale();
        for (size_t m = 0; m < n_tables_; ++m) {
            uint8_t* bytes = bytes_.data() + m * kWords;
            query.table_bytes(m, bytes);
            if (prefixes_are_used()) bits_[m] = choose_prefixes(bytes, price, prefixes_.data() + m * kWords);
        }
    }
    uint64_t masks(const Sides& sides, int64_t first, int64_t n_blocks, const Query& query, uint64_t* masks) {
        const ItemTables tables{bytes_.data(), prefixes_.data(), bits_.data()};
        return item_bounds(sides, first, n_blocks, tables, query.threshold(), masks);
    }

  private:
    size_t n_tables_;
    Lines bytes_, prefixes_;
    std::vector<uint8_t> bits_;
};

}  // namespace
}  // namespace crossbyte
