// Distance tables of queries (Sec. 4.3): what a search adds up.
#pragma once

#include <cstdint>

namespace crossbyte {

// tables[i, m, k] = |x_i - word(m, k)|^2, summed over the dimensions in order, in float32:
// a query's table does not depend on the queries beside it, nor on the instruction set.
void distance_tables(const float* points,        // [n, d]
                     const float* words_by_dim,  // [M, d, K]
                     int64_t n, int64_t n_codebooks, int64_t n_dims,
                     float* tables);  // [n, M, K]

}  // namespace crossbyte
