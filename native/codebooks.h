// Value and gradient of the codebook objective (the C step, Sec. 4.2), for L-BFGS.
#pragma once

#include <cstdint>

#include "codes.h"

namespace crossbyte {

// Sum over rows of |t - sum of words|^2 + mu (cross - epsilon)^2, and its gradient by the words:
// for codebook m of an item  2 (sum - t) + 4 mu (cross - epsilon) (sum - word_m).
double codebook_value_gradient(const double* words,   // [M, K, d]
                               const uint8_t* codes,  // [n, M]
                               const float* targets,  // [n, d]
                               CrossPenalty penalty, int64_t n, int64_t n_codebooks, int64_t n_dims,
                               double* gradient);  // [M, K, d], overwritten

}  // namespace crossbyte
