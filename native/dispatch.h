// One body, several instruction sets, chosen once per call.
//
// A kernel is written as an always-inlined template body in plain loops; CROSSBYTE_LEVELS makes a
// portable and an AVX2 copy of it. The loops are element-wise (no reordered sums, no fused
// multiply-add: -ffp-contract=off), so every level gives the same bits and tests can demand it.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CROSSBYTE_HAS_AVX2 1
#define CROSSBYTE_AVX2 __attribute__((target("avx2")))
#else
#define CROSSBYTE_HAS_AVX2 0
#define CROSSBYTE_AVX2
#endif

#if defined(__GNUC__) || defined(__clang__)
#define CROSSBYTE_INLINE inline __attribute__((always_inline))
#else
#define CROSSBYTE_INLINE inline
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

enum class Level { portable = 0, avx2 = 1 };

// The best level of this CPU, unless a lower one was asked for (tests do).
Level level();
Level best_level();
void limit_level(Level highest);

// Calls body(arguments...) compiled for the current level.
#define CROSSBYTE_DISPATCH(result, name, parameters, arguments)                            \
    static CROSSBYTE_AVX2 result name##_avx2 parameters {                                  \
        return name##_body arguments;                                                      \
    }                                                                                      \
    static result name##_portable parameters {                                             \
        return name##_body arguments;                                                      \
    }                                                                                      \
    result name parameters {                                                               \
        return level() == Level::avx2 ? name##_avx2 arguments : name##_portable arguments; \
    }

}  // namespace crossbyte
