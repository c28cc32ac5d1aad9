// Batched lasso on a Gram matrix (the S step of the paper, Sec. 4.1).
#pragma once

#include <cstdint>
#include <vector>

namespace crossbyte {

// Rows of a sparse matrix: row i holds entries indptr[i] .. indptr[i + 1].
struct SparseRows {
    const int32_t* indptr;
    const int32_t* indices;
    const float* values;
};

struct SparseRowsResult {
    std::vector<int32_t> indptr;
    std::vector<int32_t> indices;
    std::vector<float> values;
};

// For every row i minimises  1/2 s'Gs - q_i's + z_i |s|_1  to a relative KKT residual of `tolerance`.
void lasso(const float* gram,      // [n_atoms, n_atoms]
           const float* products,  // [n, n_atoms], the q_i
           const float* penalty,   // [n], the z_i
           SparseRows start, int64_t n, int64_t n_atoms, float tolerance, SparseRowsResult& result);

}  // namespace crossbyte
