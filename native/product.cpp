#include "product.h"

#include "dispatch.h"

namespace crossbyte {
namespace {

typedef double Doubles4 __attribute__((vector_size(32), aligned(8), may_alias));
constexpr int64_t kDoubles = 4;

CROSSBYTE_INLINE const Doubles4& view4(const double* at) {
    return *reinterpret_cast<const Doubles4*>(at);
}

// A tile of kRows rows and kColumns columns whose sums stay in registers.
template <int64_t kRows, int64_t kColumns>
CROSSBYTE_INLINE void tile(const double* rows, const double* matrix, int64_t d, int64_t k, double* out) {
    constexpr int64_t kParts = kColumns / kDoubles;
    Doubles4 sums[kRows][kParts] = {};
    for (int64_t l = 0; l < d; ++l)
        for (int64_t i = 0; i < kRows; ++i)
            for (int64_t p = 0; p < kParts; ++p)
                sums[i][p] += rows[i * d + l] * view4(matrix + l * k + p * kDoubles);
    for (int64_t i = 0; i < kRows; ++i)
        for (int64_t p = 0; p < kParts; ++p)
            *reinterpret_cast<Doubles4*>(out + i * k + p * kDoubles) = sums[i][p];
}

template <int64_t kRows, int64_t kColumns>
CROSSBYTE_INLINE void some_rows(const double* rows, const double* matrix, int64_t d, int64_t k, double* out) {
    int64_t j = 0;
    for (; j + kColumns <= k; j += kColumns) tile<kRows, kColumns>(rows, matrix + j, d, k, out + j);
    for (; j < k; ++j)
        for (int64_t i = 0; i < kRows; ++i) {
            double sum = 0.0;
            for (int64_t l = 0; l < d; ++l) sum += rows[i * d + l] * matrix[l * k + j];
            out[i * k + j] = sum;
        }
}

CROSSBYTE_INLINE void ordered_product_body(const double* rows, const double* matrix, int64_t n, int64_t d,
                                           int64_t k, double* out) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) some_rows<4, 8>(rows + i * d, matrix, d, k, out + i * k);
    for (; i < n; ++i) some_rows<1, 32>(rows + i * d, matrix, d, k, out + i * k);
}

}  // namespace

CROSSBYTE_DISPATCH(void, ordered_product,
                   (const double* rows, const double* matrix, int64_t n, int64_t d, int64_t k, double* out),
                   (rows, matrix, n, d, k, out))

}  // namespace crossbyte
