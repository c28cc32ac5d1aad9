// The coarse choice of an inverted file: which cells a query visits.
#pragma once

#include <cstdint>
#include <vector>

namespace crossbyte {

// Points that stand for cells. A query's score of a cell is |x - point|^2 + offset in float32, summed over
// the dimensions in order, as `distance_tables` does: the lowest scores are chosen, equal ones by cell.
//
// Few cells are scored so. All are looked at in 16 bits first, in sums of integers that are the same in any
// order, with a bound on how far these are from the true scores; only what may be among the lowest is scored.
class Router {
  public:
    Router(const float* points,   // [n_cells, d]; must outlive this
           const float* offsets,  // [n_cells], too
           int64_t n_cells, int64_t n_dims);

    int64_t n_cells() const { return n_cells_; }
    int64_t n_dims() const { return n_dims_; }

    // The first `count` cells, at most all, of one query in the order of (score, cell).
    void choose(const float* query, int64_t count, int64_t* cells) const;

  private:
    std::vector<uint64_t> candidates(const float* query, int64_t count) const;
    void score(const float* query, std::vector<uint64_t>& keys) const;

    const float *points_, *offsets_;
    int64_t n_cells_, n_dims_, n_pairs_;
    double step_ = 0.0;             // of the 16-bit points
    double longest_ = 0.0;          // point
    double farthest_off_ = 0.0;     // a point from its 16-bit one
    double largest_base_ = 0.0;     // absolute
    double largest_offset_ = 0.0;   // absolute
    std::vector<int16_t> rounded_;  // [blocks, pairs of dimensions, kLanes, 2]
    std::vector<float> bases_;      // [blocks, kLanes]: |point|^2 + offset, infinite where there is no cell
};

}  // namespace crossbyte
