// How it works: a query's tables are rounded down to bytes whose sum is a lower bound of the distance, in
// steps chosen so that the current k-th distance is 254 of them. Bounds are cheap: a whole block of items
// for one query (look-ups in registers), or a whole group of queries for one item (one load serves 64).
// Only items whose bound does not pass the k-th distance are summed up in float32, in canonical order, and
// only those sums are ever compared: the bytes decide nothing but what need not be looked at.
#include "scan.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <thread>

#include "codes.h"
#include "dispatch.h"
#include "order.h"
#include "scan_bounds.h"

namespace crossbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLook = 16;  // blocks between two looks at the limits of a group

// The k nearest of what was offered. Keeps some more, and selects seldom.
class TopK {
  public:
    TopK(int64_t k, float max_distance)
        : k_(static_cast<size_t>(k)), capacity_(k_ + std::max<size_t>(k_ / 2, 64)), limit_(max_distance) {}

    float limit() const { return limit_; }  // the largest distance that still matters

    void offer(float distance, int64_t row) {
        if (!(distance <= limit_)) return;
        keys_.push_back(key_of(distance, row));
        if (keys_.size() >= capacity_) shrink();
    }
    void shrink() {
        if (keys_.size() < k_) return;
        const auto farthest = keys_.begin() + static_cast<int64_t>(k_) - 1;
        std::nth_element(keys_.begin(), farthest, keys_.end());
        // Rows come in ascending order: a later one never displaces an equal distance.
        limit_ = std::nextafter(value_of(*farthest), -kInfinity);
        keys_.resize(k_);
    }
    const std::vector<uint64_t>& keys() {
        shrink();
        return keys_;
    }

  private:
    size_t k_, capacity_;
    float limit_;
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
};

CROSSBYTE_INLINE Range range_of_body(const float* table) {
    float low[kFloats * 2], high[kFloats * 2];
    for (int64_t l = 0; l < kFloats * 2; ++l) low[l] = high[l] = table[l];
    for (int64_t c = 0; c < kWords; c += kFloats * 2)
        for (int64_t l = 0; l < kFloats * 2; ++l) {
            low[l] = table[c + l] < low[l] ? table[c + l] : low[l];
            high[l] = table[c + l] > high[l] ? table[c + l] : high[l];
        }
    const float lowest = *std::min_element(low, low + kFloats * 2);
    const float highest = *std::max_element(high, high + kFloats * 2);
    return {lowest, std::max(std::fabs(lowest), std::fabs(highest))};
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

    Query(const ScanJob& job, int64_t q) : number(q), best(job.k, job.max_distance) {
        double largest = std::fabs(static_cast<double>(job.extra));
        base = job.extra;
        for (const Source& source : job.sources) {
            for (int64_t m = 0; m < source.n_codebooks; ++m) {
                tables.push_back(source.tables + (q * source.n_codebooks + m) * kWords);
                const Range range = range_of(tables.back());
                lowest.push_back(range.lowest);
                base += range.lowest;
                largest += range.largest;
            }
            base += source.offsets[q];
            largest += std::fabs(source.offsets[q]);
        }
        const double unit = 1.2e-7;  // a little more than the relative error of one float operation
        error = static_cast<double>(tables.size() + 4) * unit * largest;
    }

    double span() const { return static_cast<double>(best.limit()) + error - base; }

    // Chooses the steps for the current limit; none while there is no limit, or where float cannot hold them.
    void rescale() {
        best.shrink();
        const float wanted = static_cast<float>(254.0 / span());
        steps = std::isnormal(wanted) && wanted > 0.0f ? wanted : 0.0f;
    }
    // The largest sum of bytes that an item of interest can have.
    uint8_t threshold() const {
        if (steps == 0.0f) return 254;
        return static_cast<uint8_t>(std::clamp(span() * steps * (1.0 + 1e-9), 0.0, 254.0));
    }
    void table_bytes(size_t m, uint8_t* bytes) const { round_down(tables[m], lowest[m], steps, bytes); }
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

// What one thread sees of the items.
struct View {
    const ScanJob& job;
    Sides sides;
    int64_t first, last;  // blocks

    View(const ScanJob& job, int64_t first, int64_t last) : job(job), first(first), last(last) {
        for (const Source& source : job.sources) sides.push_back({source.codes, source.n_codebooks});
    }
    uint64_t allowed(int64_t block) const {
        const int64_t left = job.n_items - block * kBlock;
        const uint64_t there = left >= kBlock ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
        return job.allowed == nullptr ? there : there & job.allowed[block];
    }
    // Where to choose the steps anew: seldom, because the k-th distance falls ever more slowly.
    int64_t next_stop(int64_t at) const {
        const int64_t enough = (job.k + kBlock) / kBlock;
        return std::min(last, at + std::max(4 * (at - first), enough));
    }
    void look_at(Query& query, int64_t row) const {
        query.best.offer(exact_distance(job, query.number, row), row);
    }
};

CROSSBYTE_INLINE void smallest_of_prefixes_body(const uint8_t* bytes, size_t n, uint8_t* prefixes) {
    for (size_t p = 0; p < n; ++p) {
        const uint8_t* four = bytes + 4 * p;
        prefixes[p] = std::min(std::min(four[0], four[1]), std::min(four[2], four[3]));
    }
}
CROSSBYTE_DISPATCH(void, smallest_of_prefixes, (const uint8_t* bytes, size_t n, uint8_t* prefixes),
                   (bytes, n, prefixes))

// One query, a block of items at a time.
void scan_one(const View& view, Query& query) {
    const size_t n_tables = query.tables.size();
    Lines bytes(n_tables * kWords, 0), prefixes(n_tables * kPrefixes, 0);
    uint64_t masks[kTile];
    for (int64_t at = view.first; at < view.last;) {
        const int64_t stop = view.next_stop(at);
        query.rescale();
        for (size_t m = 0; m < n_tables; ++m) query.table_bytes(m, bytes.data() + m * kWords);
        smallest_of_prefixes(bytes.data(), n_tables * kPrefixes, prefixes.data());
        for (; at < stop; at += kTile) {
            const int64_t n = std::min(kTile, stop - at);
            uint64_t some =
                item_bounds(view.sides, at, n, bytes.data(), prefixes.data(), query.threshold(), masks);
            for (; some != 0; some &= some - 1) {
                const int64_t b = __builtin_ctzll(some);
                for (uint64_t mask = masks[b] & view.allowed(at + b); mask != 0; mask &= mask - 1)
                    view.look_at(query, (at + b) * kBlock + __builtin_ctzll(mask));
            }
        }
        at = stop;
    }
}

// The bytes of a group of queries, those of all queries for one code together: [tables, 256, width].
void group_bytes(const std::vector<Query*>& queries, int64_t width, uint8_t* bytes) {
    std::vector<uint8_t> own(queries.size() * kWords);
    for (size_t m = 0; m < queries[0]->tables.size(); ++m) {
        for (size_t q = 0; q < queries.size(); ++q) queries[q]->table_bytes(m, own.data() + q * kWords);
        uint8_t* out = bytes + static_cast<int64_t>(m) * kWords * width;
        for (int64_t c = 0; c < kWords; ++c, out += width)
            for (size_t q = 0; q < queries.size(); ++q) out[q] = own[q * kWords + c];
    }
}

// A group of queries, an item at a time.
void scan_group(const View& view, const std::vector<Query*>& queries, int64_t width) {
    // Lanes without a query keep 255 everywhere and never pass.
    Lines bytes(queries[0]->tables.size() * kWords * width, 255);
    uint64_t masks[kBlock];
    uint8_t thresholds[kWidest] = {};
    for (int64_t at = view.first; at < view.last;) {
        const int64_t stop = view.next_stop(at);
        for (Query* query : queries) query->rescale();
        group_bytes(queries, width, bytes.data());
        for (int64_t since = 0; at < stop; ++at, ++since) {
            if (since % kLook == 0)
                for (size_t q = 0; q < queries.size(); ++q) thresholds[q] = queries[q]->threshold();
            uint64_t items = group_bounds(view.sides, at, width, bytes.data(), thresholds, masks);
            for (items &= view.allowed(at); items != 0; items &= items - 1) {
                const int64_t i = __builtin_ctzll(items);
                for (uint64_t mask = masks[i]; mask != 0; mask &= mask - 1)
                    view.look_at(*queries[__builtin_ctzll(mask)], at * kBlock + i);
            }
        }
    }
}

// How many of the queries that are left are scanned together. Where a whole table fits into registers, single
// queries are so fast that a group must be larger to pay.
int64_t group_width(int64_t left) {
    const bool fast_alone = level() == Level::avx512;
    if (left < (fast_alone ? 24 : 16)) return 1;
    return left <= 32 && !fast_alone ? 32 : kWidest;
}

// Queries in groups; the few that are left one by one.
void scan_range(const ScanJob& job, int64_t first, int64_t last, std::vector<std::vector<uint64_t>>& found) {
    const View view(job, first, last);
    std::vector<Query> queries;
    for (int64_t q = 0; q < job.n_queries; ++q) queries.emplace_back(job, q);
    for (int64_t q = 0; q < job.n_queries;) {
        const int64_t width = group_width(job.n_queries - q);
        const int64_t taken = std::min(width, job.n_queries - q);
        if (width == 1) {
            scan_one(view, queries[q]);
        } else {
            std::vector<Query*> group;
            for (int64_t i = q; i < q + taken; ++i) group.push_back(&queries[i]);
            scan_group(view, group, width);
        }
        q += taken;
    }
    for (Query& query : queries) found.push_back(query.best.keys());
}

}  // namespace

std::vector<std::vector<Hit>> scan(const ScanJob& job) {
    const int64_t n_blocks = (job.n_items + kBlock - 1) / kBlock;
    const int64_t n_parts = std::max<int64_t>(1, std::min(job.n_threads, n_blocks / kLook));
    std::vector<std::vector<std::vector<uint64_t>>> found(n_parts);
    std::vector<std::exception_ptr> failures(n_parts);
    std::vector<std::thread> threads;
    const auto work = [&](int64_t part) {
        try {
            scan_range(job, n_blocks * part / n_parts, n_blocks * (part + 1) / n_parts, found[part]);
        } catch (...) {
            failures[part] = std::current_exception();
        }
    };
    for (int64_t part = 1; part < n_parts; ++part) threads.emplace_back(work, part);
    work(0);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
    std::vector<std::vector<Hit>> hits(job.n_queries);
    for (int64_t q = 0; q < job.n_queries; ++q) {
        std::vector<uint64_t>& all = found[0][q];
        for (int64_t part = 1; part < n_parts; ++part)
            all.insert(all.end(), found[part][q].begin(), found[part][q].end());
        std::sort(all.begin(), all.end());
        all.resize(std::min(all.size(), static_cast<size_t>(job.k)));
        for (const uint64_t key : all) hits[q].push_back({value_of(key), place_of(key)});
    }
    return hits;
}

}  // namespace crossbyte
