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

}  // namespace crossbyte
