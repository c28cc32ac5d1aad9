#include "search.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "codes.h"
#include "parts.h"
#include "scan.h"
#include "tables.h"

namespace crossbyte {
namespace {

constexpr int64_t kQueriesPerThread = 16;  // for which the tables are worth a thread
constexpr int64_t kCached = 8;             // queries whose tables stay in the cache

// Tables and offsets of all queries, by quantizer; cells, by router.
class Prepared {
  public:
    Prepared(const SearchSpace& space, const std::vector<AskedPart>& asked, const PointQueries& queries)
        : space_(space), queries_(queries), tables_(space.quantizers.size()) {
        for (const AskedPart& each : asked) {
            if (each.n_probe > 0) {
                if (find(each) == nullptr) choices_.push_back({each.part->router, each.n_probe, {}});
            }
            for (const PartSide& side : each.part->sides) {
                Tables& own = tables_[side.quantizer];
                if (own.values) continue;
                const int64_t n_tables = tables_of(space.quantizers[side.quantizer]);
                own.values.reset(new float[queries.n * n_tables * kWords]);
                own.offsets.reset(new float[queries.n]);
            }
        }
        for (Choice& choice : choices_) choice.cells.resize(queries.n * choice.n_probe);
        const int64_t worthwhile = queries.n / kQueriesPerThread;
        const int64_t n_parts = std::max<int64_t>(1, std::min(queries.n_threads, worthwhile));
        in_parts(n_parts, [&](int64_t part) {
            for (int64_t q = queries.n * part / n_parts; q < queries.n * (part + 1) / n_parts; ++q)
                prepare(q);
        });
    }

    Source source(const PartSide& side, const uint8_t* codes) const {
        const Tables& own = tables_[side.quantizer];
        return {codes, own.values.get(), own.offsets.get(), tables_of(space_.quantizers[side.quantizer])};
    }
    const int64_t* cells(const AskedPart& asked) const { return find(asked)->cells.data(); }

  private:
    struct Tables {
        std::unique_ptr<float[]> values;   // [n, M', 256], not initialised
        std::unique_ptr<float[]> offsets;  // [n]
    };
    struct Choice {
        const Router* router;
        int64_t n_probe;
        std::vector<int64_t> cells;  // [n, n_probe]
    };

    static int64_t tables_of(const Quantizer& quantizer) {
        return quantizer.n_codebooks + (quantizer.cross_levels != nullptr);
    }
    const Choice* find(const AskedPart& asked) const {
        for (const Choice& each : choices_)
            if (each.router == asked.part->router && each.n_probe == asked.n_probe) return &each;
        return nullptr;
    }
    void prepare(int64_t q) {
        const float* point = queries_.points + q * space_.n_dims;
        for (size_t i = 0; i < tables_.size(); ++i)
            if (tables_[i].values) make_tables(space_.quantizers[i], point, q, tables_[i]);
        for (Choice& each : choices_)
            each.router->choose(point, each.n_probe, each.cells.data() + q * each.n_probe);
    }
    void make_tables(const Quantizer& quantizer, const float* point, int64_t q, Tables& tables) const {
        const int64_t M = quantizer.n_codebooks;
        float* values = tables.values.get() + q * tables_of(quantizer) * kWords;
        distance_tables(point, quantizer.words_by_dim, 1, M, space_.n_dims, values);
        float square = space_.n_dims > 0 ? point[0] * point[0] : 0.0f;
        for (int64_t j = 1; j < space_.n_dims; ++j) square += point[j] * point[j];
        float& offset = tables.offsets[q];
        offset = -static_cast<float>(M - 1) * square;
        if (quantizer.cross_levels == nullptr)
            offset += quantizer.epsilon;
        else
            std::copy(quantizer.cross_levels, quantizer.cross_levels + kWords, values + M * kWords);
    }

    const SearchSpace& space_;
    const PointQueries& queries_;
    std::vector<Tables> tables_;
    std::vector<Choice> choices_;
};

using Hits = std::vector<std::vector<Hit>>;

ScanJob job_of(const AskedPart& asked, const PointQueries& queries, int64_t n_items, const float extra) {
    const int64_t k = std::min(queries.k, std::max<int64_t>(1, n_items));
    return {{}, extra, asked.allowed, n_items, queries.n, k, queries.max_distance, queries.n_threads};
}

// What is found in a part: in all of it, or in each run of the cells.
std::vector<Hits> scan_part(const AskedPart& asked, const Prepared& prepared, const PointQueries& queries) {
    const Part& part = *asked.part;
    const float extra = asked.extra + 0.0f;  // no sum is -0.0 then
    std::vector<Hits> found;
    if (asked.n_probe == 0) {
        ScanJob job = job_of(asked, queries, part.n_items, extra);
        for (const PartSide& side : part.sides) job.sources.push_back(prepared.source(side, side.codes));
        found.push_back(scan(job));
    } else {
        for (const CellRun& run : part.runs) {
            ScanJob job = job_of(asked, queries, run.n_items, extra);
            job.sources.push_back(prepared.source(part.sides[0], run.codes));
            found.push_back(scan_cells(job, {run.rows, run.starts, run.n_cells, prepared.cells(asked),
                                             asked.n_probe, part.n_items}));
        }
    }
    return found;
}

bool is_nearer(const FoundDocument& one, const FoundDocument& other) {
    return one.distance < other.distance || (one.distance == other.distance && one.number < other.number);
}

std::vector<std::vector<FoundDocument>> search_together(const SearchSpace& space,
                                                        const std::vector<AskedPart>& asked,
                                                        const PointQueries& queries) {
    const Prepared prepared(space, asked, queries);
    std::vector<std::vector<FoundDocument>> documents(queries.n);
    int64_t n_lists = 0;
    for (const AskedPart& each : asked)
        for (const Hits& found : scan_part(each, prepared, queries)) {
            ++n_lists;
            for (int64_t q = 0; q < queries.n; ++q)
                for (const Hit& hit : found[q])
                    documents[q].push_back(
                        {hit.distance, each.part->coding, each.part->numbers.of(hit.row), hit.row});
        }
    if (n_lists > 1)
        for (std::vector<FoundDocument>& each : documents) {
            std::sort(each.begin(), each.end(), is_nearer);
            each.resize(std::min(each.size(), static_cast<size_t>(queries.k)));
        }
    return documents;
}

}  // namespace

std::vector<std::vector<FoundDocument>> search(const SearchSpace& space, const std::vector<AskedPart>& asked,
                                               const PointQueries& queries) {
    const auto is_routed = [](const AskedPart& each) { return each.n_probe > 0; };
    const bool all_routed = std::all_of(asked.begin(), asked.end(), is_routed);
    if (!all_routed || queries.n <= kCached) return search_together(space, asked, queries);
    // Queries that visit cells have no work in common: some at a time, so that their tables stay in the
    // cache.
    const int64_t n_groups = (queries.n + kCached - 1) / kCached;
    std::vector<std::vector<FoundDocument>> documents(queries.n);
    std::atomic<int64_t> next{0};
    in_parts(std::min(queries.n_threads, n_groups), [&](int64_t) {
        for (int64_t group = next++; group < n_groups; group = next++) {
            PointQueries some = queries;
            some.points += group * kCached * space.n_dims;
            some.n = std::min(kCached, queries.n - group * kCached);
            some.n_threads = 1;
            auto found = search_together(space, asked, some);
            std::move(found.begin(), found.end(), documents.begin() + group * kCached);
        }
    });
    return documents;
}

}  // namespace crossbyte
