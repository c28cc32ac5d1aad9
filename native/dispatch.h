// One body, several instruction sets, chosen once per call.
//
// A kernel is written as an always-inlined body in plain loops; CROSSBYTE_DISPATCH makes a portable and
// an AVX2 copy of it. The loops are element-wise (no reordered sums, no fused
// multiply-add: -ffp-contract=off), so every level gives the same bits and tests can demand it.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CROSSBYTE_HAS_AVX2 1
#define CROSSBYTE_AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define CROSSBYTE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#else
#define CROSSBYTE_HAS_AVX2 0
#define CROSSBYTE_AVX2
#define CROSSBYTE_AVX512
#endif

#if defined(__GNUC__) || defined(__clang__)
#define CROSSBYTE_INLINE inline __attribute__((always_inline))
#define CROSSBYTE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define CROSSBYTE_INLINE inline
#define CROSSBYTE_INLINE_LAMBDA
#endif

namespace crossbyte {

// Eight floats that the compiler keeps in one or two registers: element-wise, at every level.
typedef float Floats8 __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int64_t kFloats = 8;

CROSSBYTE_INLINE const Floats8& view8(const float* at) {
    return *reinterpret_cast<const Floats8*>(at);
}
CROSSBYTE_INLINE Floats8& view8(float* at) {
    return *reinterpret_cast<Floats8*>(at);
}

CROSSBYTE_INLINE void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

// avx512 means AVX-512 with VBMI (byte permutations), which the scan needs.
enum class Level { portable = 0, avx2 = 1, avx512 = 2 };

// The best level of this CPU, unless a lower one was asked for (tests do).
Level level();
Level best_level();
void limit_level(Level highest);
const char* level_name(Level level);

// Calls body(arguments...) compiled for the current level.
#define CROSSBYTE_DISPATCH(result, name, parameters, arguments)                            \
    static CROSSBYTE_AVX2 result name##_avx2 parameters {                                  \
        return name##_body arguments;                                                      \
    }                                                                                      \
    static result name##_portable parameters {                                             \
        return name##_body arguments;                                                      \
    }                                                                                      \
    result name parameters {                                                               \
        return level() >= Level::avx2 ? name##_avx2 arguments : name##_portable arguments; \
    }

// The same for a body that is a template by the bytes of a register.
#define CROSSBYTE_DISPATCH_WIDTHS(result, name, parameters, arguments) \
    static CROSSBYTE_AVX512 result name##_avx512 parameters {          \
        return name##_body<64> arguments;                              \
    }                                                                  \
    static CROSSBYTE_AVX2 result name##_avx2 parameters {              \
        return name##_body<32> arguments;                              \
    }                                                                  \
    static result name##_portable parameters {                         \
        return name##_body<16> arguments;                              \
    }                                                                  \
    result name parameters {                                           \
        if (level() >= Level::avx512) return name##_avx512 arguments;  \
        if (level() >= Level::avx2) return name##_avx2 arguments;      \
        return name##_portable arguments;                              \
    }

}  // namespace crossbyte
