// The scan of some cells only. Places are not in the order of rows here, so that equal distances are told
// apart by the keys of the hits. The row of an item is looked up only once its distance is small enough, and,
// because it lies far away in memory, a cell later: until then it is on its way, as are the codes of the
// next.
#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "order.h"
#include "parts.h"
#include "scan.h"
#include "scan_bounds.h"
#include "scan_query.h"

namespace crossbyte {
namespace {

// Bits of the items of a block whose places are in [start, stop).
CROSSBYTE_INLINE uint64_t inside(int64_t block, int64_t start, int64_t stop) {
    const int64_t low = std::max<int64_t>(0, start - block * kBlock);
    const int64_t left = std::min(kBlock, stop - block * kBlock);
    const uint64_t below = left >= kBlock ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
    return below & (~uint64_t{0} << low);
}

// The nearest of what the shares of a query have found, in order.
std::vector<Hit> nearest_hits(std::vector<uint64_t>* found, int64_t n, int64_t k) {
    std::vector<uint64_t>& keys = found[0];
    for (int64_t i = 1; i < n; ++i) keys.insert(keys.end(), found[i].begin(), found[i].end());
    std::sort(keys.begin(), keys.end());
    keys.resize(std::min(keys.size(), static_cast<size_t>(k)));
    std::vector<Hit> hits;
    hits.reserve(keys.size());
    for (const uint64_t key : keys) hits.push_back({value_of(key), place_of(key)});
    return hits;
}

class Visit {
  public:
    Visit(const ScanJob& job, const Visits& visits, int64_t q)
        : job_(job), visits_(visits), query_(job, q, false), bounds_(query_) {
        for (const Source& source : job.sources) sides_.push_back({source.codes, source.n_codebooks});
    }

    // Keys of the nearest items of some of the query's cells.
    const std::vector<uint64_t>& nearest(int64_t first, int64_t last) {
        const int64_t* cells = visits_.cells + query_.number * visits_.per_query;
        for (int64_t i = first; i < last; ++i) {
            const int64_t cell = cells[i];
            if (cell < 0 || cell >= visits_.n_cells) throw std::invalid_argument("cells must be cells");
            const int64_t start = visits_.starts[cell], stop = visits_.starts[cell + 1];
            if (start < 0 || stop > job_.n_items) throw std::invalid_argument("starts must be places");
            if (i + 1 < last) prefetch_cell(cells[i + 1]);
            if (start < stop) look_through(start, stop);
        }
        offer_pending();
        return query_.best.keys();
    }

  private:
    void look_through(int64_t start, int64_t stop) {
        const int64_t last = (stop + kBlock - 1) / kBlock;
        for (int64_t at = start / kBlock; at < last;) {
            if (seen_ >= next_) choose_steps();
            const int64_t n = std::min({kTile, last - at, next_ - seen_});
            uint64_t some = bounds_.masks(sides_, at, n, query_, masks_);
            offer_pending();
            for (; some != 0; some &= some - 1) {
                const int64_t b = __builtin_ctzll(some);
                for (uint64_t mask = masks_[b] & inside(at + b, start, stop); mask != 0; mask &= mask - 1)
                    look_at((at + b) * kBlock + __builtin_ctzll(mask));
            }
            at += n;
            seen_ += n;
        }
    }
    // Seldom, because the k-th distance falls ever more slowly.
    void choose_steps() {
        offer_pending();
        bounds_.rescale(query_);
        next_ = seen_ + std::max(4 * seen_, (job_.k + kBlock) / kBlock);
    }
    void look_at(int64_t place) {
        const float distance = exact_distance(job_, query_.number, place);
        if (!(distance <= query_.best.limit())) return;
        prefetch(visits_.rows + place);
        pending_.push_back({distance, place});
    }
    void offer_pending() {
        for (const Pending& each : pending_) {
            const int64_t row = visits_.rows[each.place];
            if (job_.allowed != nullptr) {
                if (row >= visits_.n_rows) throw std::invalid_argument("allowed must have a bit per row");
                if ((job_.allowed[row / kBlock] >> (row % kBlock) & 1) == 0) continue;
            }
            query_.best.offer(each.distance, row);
        }
        pending_.clear();
    }
    void prefetch_cell(int64_t cell) const {
        constexpr int64_t kMost = 4096;  // bytes; further on, the processor has seen where it goes
        if (cell < 0 || cell >= visits_.n_cells) return;
        const int64_t bytes = job_.sources[0].n_codebooks * kBlock, items = job_.n_items;
        const int64_t start = std::clamp<int64_t>(visits_.starts[cell], 0, items) / kBlock * bytes;
        const int64_t stop =
            (std::clamp<int64_t>(visits_.starts[cell + 1], 0, items) + kBlock - 1) / kBlock * bytes;
        for (int64_t at = start; at < std::min(stop, start + kMost); at += 64)
            prefetch(job_.sources[0].codes + at);
    }

    struct Pending {
        float distance;
        int64_t place;
    };

    const ScanJob& job_;
    const Visits& visits_;
    Query query_;
    ItemBounds bounds_;
    Sides sides_;
    uint64_t masks_[kTile];
    std::vector<Pending> pending_;  // near enough, their rows not yet looked up
    int64_t seen_ = 0, next_ = 0;   // blocks; where to choose the steps anew
};

// A query and some of its cells, for one thread.
struct Share {
    int64_t query, first, last;
};

// Queries go to threads whole; a few that look at many items are cut into shares of cells.
std::vector<Share> shares_of(const ScanJob& job, const Visits& visits) {
    constexpr int64_t kWorthwhile = int64_t{1} << 16;  // items: what a thread must save to be worth starting
    int64_t n_shares = 1;
    if (job.n_queries < job.n_threads && visits.n_cells > 0) {
        const double share = static_cast<double>(visits.per_query) / static_cast<double>(visits.n_cells);
        const int64_t worthwhile =
            static_cast<int64_t>(share * static_cast<double>(job.n_items)) / kWorthwhile;
        const int64_t wanted = std::min(job.n_threads, std::min(worthwhile, visits.per_query));
        n_shares = std::max<int64_t>(1, wanted);
    }
    std::vector<Share> shares;
    for (int64_t q = 0; q < job.n_queries; ++q)
        for (int64_t s = 0; s < n_shares; ++s)
            shares.push_back({q, visits.per_query * s / n_shares, visits.per_query * (s + 1) / n_shares});
    return shares;
}

}  // namespace

std::vector<std::vector<Hit>> scan_cells(const ScanJob& job, const Visits& visits) {
    const std::vector<Share> shares = shares_of(job, visits);
    const int64_t n_shares = static_cast<int64_t>(shares.size());
    std::vector<std::vector<uint64_t>> found(shares.size());
    std::atomic<int64_t> next{0};
    in_parts(std::max<int64_t>(1, std::min(job.n_threads, n_shares)), [&](int64_t) {
        for (int64_t s = next++; s < n_shares; s = next++)
            found[s] = Visit(job, visits, shares[s].query).nearest(shares[s].first, shares[s].last);
    });
    std::vector<std::vector<Hit>> hits(job.n_queries);
    const int64_t per_query = n_shares / std::max<int64_t>(1, job.n_queries);
    for (int64_t q = 0; q < job.n_queries; ++q)
        hits[q] = nearest_hits(found.data() + q * per_query, per_query, job.k);
    return hits;
}

}  // namespace crossbyte
