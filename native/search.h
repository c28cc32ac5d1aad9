// The way of queries from their points to the nearest documents: tables, the choice of cells, the scans of
// all codings, and the order of what they find.
#pragma once

#include <cstdint>
#include <vector>

#include "router.h"

namespace crossbyte {

// What makes the distance tables of queries: M codebooks, and the values of a stored cross term, if there is
// one.
struct Quantizer {
    const float* words_by_dim;  // [M, d, 256]
    const float* cross_levels;  // [256], one table more; null without
    int64_t n_codebooks;        // M
    float epsilon;              // added to the offset where no cross term is stored
};

// Items that lie cell after cell.
struct CellRun {
    const uint8_t* codes;   // [blocks, M', 64]
    const uint32_t* rows;   // [n_items]: the row of the item at each place
    const int64_t* starts;  // [n_cells + 1]
    int64_t n_items;
    int64_t n_cells;
};

// Ascending numbers of the documents of a part: `first` and the steps from it, the row itself without any.
struct Numbers {
    int64_t first;
    const uint32_t* steps32;
    const uint64_t* steps64;

    int64_t of(int64_t row) const {
        if (steps32 != nullptr) return first + steps32[row];
        return first + (steps64 != nullptr ? static_cast<int64_t>(steps64[row]) : row);
    }
};

// Codes of one side of the documents of a part.
struct PartSide {
    int64_t quantizer;     // its place among those of the space
    const uint8_t* codes;  // [blocks, M', 64]
};

// Documents of one coding.
struct Part {
    uint8_t coding;               // how the caller calls it
    std::vector<PartSide> sides;  // one, or two whose distances are added
    int64_t n_items;
    Numbers numbers;
    const Router* router;  // of its cells; null without
    std::vector<CellRun> runs;
};

struct SearchSpace {
    int64_t n_dims;
    std::vector<Quantizer> quantizers;
    std::vector<Part> parts;
};

// A part that is searched.
struct AskedPart {
    const Part* part;
    float extra;              // added to its distances last
    const uint64_t* allowed;  // a bit per row
    int64_t n_probe;          // cells that are visited; 0: all documents are looked at
};

struct PointQueries {
    const float* points;  // [n, d]
    int64_t n;
    int64_t k;
    float max_distance;  // inclusive
    int64_t n_threads;
};

struct FoundDocument {
    float distance;
    uint8_t coding;
    int64_t number;
    int64_t row;  // in its part
};

// The k nearest documents of every query in the order of (distance, number).
std::vector<std::vector<FoundDocument>> search(const SearchSpace& space, const std::vector<AskedPart>& asked,
                                               const PointQueries& queries);

}  // namespace crossbyte
