// The scan of some cells only. Places are not in the order of rows here, so that equal distances are told
// apart by the keys of the hits, and items are looked up in the bitmap one by one, after their bounds.
#include <algorithm>
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

class Visit {
  public:
    Visit(const ScanJob& job, const Visits& visits, int64_t q)
        : job_(job), visits_(visits), query_(job, q, false), bounds_(query_) {
        for (const Source& source : job.sources) sides_.push_back({source.codes, source.n_codebooks});
    }

    const std::vector<uint64_t>& nearest() {
        const int64_t* cells = visits_.cells + query_.number * visits_.per_query;
        for (int64_t i = 0; i < visits_.per_query; ++i) {
            const int64_t cell = cells[i];
            if (cell < 0 || cell >= visits_.n_cells) throw std::invalid_argument("cells must be cells");
            const int64_t start = visits_.starts[cell], stop = visits_.starts[cell + 1];
            if (start < 0 || stop > job_.n_items) throw std::invalid_argument("starts must be places");
            if (start < stop) look_through(start, stop);
        }
        return query_.best.keys();
    }

  private:
    void look_through(int64_t start, int64_t stop) {
        const int64_t last = (stop + kBlock - 1) / kBlock;
        for (int64_t at = start / kBlock; at < last;) {
            if (seen_ >= next_) choose_steps();
            const int64_t n = std::min({kTile, last - at, next_ - seen_});
            uint64_t some = bounds_.masks(sides_, at, n, query_, masks_);
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
        bounds_.rescale(query_);
        next_ = seen_ + std::max(4 * seen_, (job_.k + kBlock) / kBlock);
    }
    void look_at(int64_t place) {
        const int64_t row = visits_.rows[place];
        if (job_.allowed != nullptr) {
            if (row >= visits_.n_rows) throw std::invalid_argument("allowed must have a bit per row");
            if ((job_.allowed[row / kBlock] >> (row % kBlock) & 1) == 0) return;
        }
        query_.best.offer(exact_distance(job_, query_.number, place), row);
    }

    const ScanJob& job_;
    const Visits& visits_;
    Query query_;
    ItemBounds bounds_;
    Sides sides_;
    uint64_t masks_[kTile];
    int64_t seen_ = 0, next_ = 0;  // blocks; where to choose the steps anew
};

std::vector<Hit> hits_of(std::vector<uint64_t> keys, int64_t k) {
    std::sort(keys.begin(), keys.end());
    keys.resize(std::min(keys.size(), static_cast<size_t>(k)));
    std::vector<Hit> hits;
    for (const uint64_t key : keys) hits.push_back({value_of(key), place_of(key)});
    return hits;
}

}  // namespace

std::vector<std::vector<Hit>> scan_cells(const ScanJob& job, const Visits& visits) {
    const int64_t n_parts = std::max<int64_t>(1, std::min(job.n_threads, job.n_queries));
    std::vector<std::vector<Hit>> hits(job.n_queries);
    in_parts(n_parts, [&](int64_t part) {
        for (int64_t q = part; q < job.n_queries; q += n_parts)
            hits[q] = hits_of(Visit(job, visits, q).nearest(), job.k);
    });
    return hits;
}

}  // namespace crossbyte
