// Rows times a small matrix, every row computed for itself.
#pragma once

#include <cstdint>

namespace crossbyte {

// out[i, j] = sum over l of rows[i, l] * matrix[l, j], in the order of l and in double precision: unlike a
// BLAS, whose kernels depend on the shapes, a row comes out the same whatever rows are beside it.
void ordered_product(const double* rows, const double* matrix, int64_t n, int64_t d, int64_t k, double* out);

}  // namespace crossbyte
