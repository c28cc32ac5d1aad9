#include "codebooks.h"

#include <algorithm>
#include <vector>

#include "dispatch.h"

namespace crossbyte {
namespace {

CROSSBYTE_INLINE double codebook_value_gradient_body(const double* words, const uint8_t* codes,
                                                     const float* targets, CrossPenalty penalty, int64_t n,
                                                     int64_t n_codebooks, int64_t n_dims, double* gradient) {
    std::fill(gradient, gradient + n_codebooks * kWords * n_dims, 0.0);
    std::vector<double> sums(n_dims), pull(n_dims);
    double value = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t* code = codes + i * n_codebooks;
        double* __restrict sum = sums.data();
        std::fill(sum, sum + n_dims, 0.0);
        double own = 0.0;
        for (int64_t m = 0; m < n_codebooks; ++m) {
            const double* __restrict word = words + (m * kWords + code[m]) * n_dims;
            for (int64_t j = 0; j < n_dims; ++j) sum[j] += word[j];
            for (int64_t j = 0; j < n_dims; ++j) own += word[j] * word[j];
        }
        double error = 0.0, total = 0.0;
        for (int64_t j = 0; j < n_dims; ++j) {
            const double difference = sum[j] - targets[i * n_dims + j];
            error += difference * difference;
            total += sum[j] * sum[j];
        }
        const double gap = total - own - penalty.epsilon;
        value += error + penalty.weight * gap * gap;
        const double push = 4.0 * penalty.weight * gap;
        double* __restrict shared = pull.data();
        for (int64_t j = 0; j < n_dims; ++j)
            shared[j] = 2.0 * (sum[j] - targets[i * n_dims + j]) + push * sum[j];
        for (int64_t m = 0; m < n_codebooks; ++m) {
            const int64_t at = (m * kWords + code[m]) * n_dims;
            const double* __restrict word = words + at;
            double* __restrict out = gradient + at;
            for (int64_t j = 0; j < n_dims; ++j) out[j] += shared[j] - push * word[j];
        }
    }
    return value;
}

}  // namespace

CROSSBYTE_DISPATCH(double, codebook_value_gradient,
                   (const double* words, const uint8_t* codes, const float* targets, CrossPenalty penalty,
                    int64_t n, int64_t n_codebooks, int64_t n_dims, double* gradient),
                   (words, codes, targets, penalty, n, n_codebooks, n_dims, gradient))

}  // namespace crossbyte
