// Exact top-k over short codes: the distance of an item is a sum of table entries.
#pragma once

#include <cstdint>
#include <vector>

namespace crossbyte {

// Codes of one side of the items, and what they mean to the queries.
struct Source {
    const uint8_t* codes;  // [n_blocks, M, kBlock]; the last block is padded
    const float* tables;   // [n_queries, M, 256]
    const float* offsets;  // [n_queries], added after the tables
    int64_t n_codebooks;   // M
};

struct Hit {
    float distance;
    int64_t row;
};

struct ScanJob {
    std::vector<Source> sources;  // one, or two whose distances are added
    float extra;                  // added last
    const uint64_t* allowed;      // [n_blocks], a bit per item; null: all
    int64_t n_items;
    int64_t n_queries;
    int64_t k;
    float max_distance;  // inclusive
    int64_t n_threads;
};

// The k nearest items of every query in the order of (distance, row). The canonical sum is float32, in
// order: tables and offset of a source, the sources, `extra`. Every level and every number of threads
// gives the same bits.
std::vector<std::vector<Hit>> scan(const ScanJob& job);

// Items that lie cell after cell, and the cells that each query visits.
struct Visits {
    const uint32_t* rows;   // [n_items]: the row of the item at each place
    const int64_t* starts;  // [n_cells + 1]: places of each cell
    int64_t n_cells;
    const int64_t* cells;  // [n_queries, per_query]
    int64_t per_query;
    int64_t n_rows;  // bits of job.allowed, which go by rows
};

// The same among the items of the visited cells alone, with `row` of a hit from `rows`. The job's items are
// places; it has one source.
std::vector<std::vector<Hit>> scan_cells(const ScanJob& job, const Visits& visits);

}  // namespace crossbyte
