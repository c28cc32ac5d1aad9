// How it works: a query's tables are rounded down to bytes whose sum is a lower bound of the distance, in
// steps chosen so that the current k-th distance is 254 of them. Bounds are cheap: a whole block of items
// for one query (look-ups in registers), or a whole group of queries for one item (one load serves 64).
// Only items whose bound does not pass the k-th distance are summed up in float32, in canonical order, and
// only those sums are ever compared: the bytes decide nothing but what need not be looked at.
#include "scan.h"

#include <algorithm>

#include "dispatch.h"
#include "order.h"
#include "parts.h"
#include "scan_bounds.h"
#include "scan_query.h"

namespace crossbyte {
namespace {

constexpr int64_t kLook = 16;  // blocks between two looks at the limits of a group

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
    // Whether some items of the blocks before `stop` may not be found.
    bool is_partial(int64_t stop) const { return job.allowed != nullptr || stop * kBlock > job.n_items; }
    // Takes out of the masks of a tile what may not be found.
    uint64_t keep_allowed(int64_t at, uint64_t some, uint64_t* masks) const {
        uint64_t kept = 0;
        for (; some != 0; some &= some - 1) {
            const int64_t b = __builtin_ctzll(some);
            masks[b] &= allowed(at + b);
            kept |= static_cast<uint64_t>(masks[b] != 0) << b;
        }
        return kept;
    }
    // Lets a query assume from what it has seen, lately of the blocks [begin, stop), how much it has to keep.
    void assume(Query& query, int64_t begin, int64_t stop) const {
        if (stop >= last) return;
        const double seen = static_cast<double>(stop - first);
        query.best.assume(seen / static_cast<double>(last - first), static_cast<double>(stop - begin) / seen,
                          begin * kBlock);
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

// The items in the masks of a tile, in order; returns how many. Mostly a mask has a few bits, and to write
// eight places, whatever they are, is faster than to guess how many there are.
constexpr int64_t kListed = 8;
constexpr uint64_t kTopBit = uint64_t{1} << 63;  // there is a lowest bit then

CROSSBYTE_INLINE int64_t list_items_body(const uint64_t* masks, uint64_t some, uint16_t* items) {
    uint16_t* end = items;
    for (; some != 0; some &= some - 1) {
        const int64_t b = __builtin_ctzll(some);
        const int64_t n = __builtin_popcountll(masks[b]);
        uint64_t mask = masks[b];
        for (int64_t i = 0; i < n; i += kListed)
#pragma GCC unroll 8
            for (int64_t j = 0; j < kListed; ++j, mask &= mask - 1)
                end[i + j] = static_cast<uint16_t>(b * kBlock + __builtin_ctzll(mask | kTopBit));
        end += n;
    }
    return end - items;
}
CROSSBYTE_DISPATCH(int64_t, list_items, (const uint64_t* masks, uint64_t some, uint16_t* items),
                   (masks, some, items))

// One query, a block of items at a time. Returns whether that was enough, which it is without assuming.
bool scan_one(const View& view, Query& query, bool assuming) {
    ItemBounds bounds(query);
    uint64_t masks[kTile];
    uint16_t items[kTile * kBlock + kListed];
    float distances[kTile * kBlock];
    int64_t price = kUsualPrice;
    for (int64_t at = view.first; at < view.last;) {
        const int64_t begin = at, stop = view.next_stop(at);
        int64_t n_summed = 0;
        bounds.rescale(query, price);
        for (; at < stop; at += kTile) {
            uint64_t some = bounds.masks(view.sides, at, std::min(kTile, stop - at), query, masks);
            if (view.is_partial(stop)) some = view.keep_allowed(at, some, masks);
            const int64_t n = list_items(masks, some, items);
            exact_distances(view.job, query.number, at, items, n, distances);
            for (int64_t i = 0; i < n; ++i) query.best.offer(distances[i], at * kBlock + items[i]);
            n_summed += n;
        }
        at = stop;
        price = price_of((stop - begin) * kBlock, n_summed);
        if (assuming) view.assume(query, begin, stop);
    }
    return query.best.is_complete();
}

// The same, whatever it takes.
void scan_surely(const View& view, Query& query) {
    if (scan_one(view, query, true)) return;
    query.best.restart();
    scan_one(view, query, false);
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
        const int64_t begin = at, stop = view.next_stop(at);
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
        for (Query* query : queries) view.assume(*query, begin, stop);
    }
    for (Query* query : queries) {
        if (query->best.is_complete()) continue;
        query->best.restart();
        scan_one(view, *query, false);
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
            scan_surely(view, queries[q]);
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
    in_parts(n_parts, [&](int64_t part) {
        scan_range(job, n_blocks * part / n_parts, n_blocks * (part + 1) / n_parts, found[part]);
    });
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
