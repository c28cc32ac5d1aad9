#include "dispatch.h"

#include <atomic>

namespace crossbyte {

namespace {
std::atomic<int> highest{static_cast<int>(Level::avx512)};
}

Level best_level() {
#if CROSSBYTE_HAS_AVX2
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("popcnt"))
        return Level::portable;
    const bool wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi");
    return wide ? Level::avx512 : Level::avx2;
#else
    return Level::portable;
#endif
}

Level level() {
    static const int best = static_cast<int>(best_level());
    const int limit = highest.load(std::memory_order_relaxed);
    return static_cast<Level>(limit < best ? limit : best);
}

void limit_level(Level limit) {
    highest.store(static_cast<int>(limit));
}

const char* level_name(Level level) {
    static const char* const names[] = {"portable", "avx2", "avx512"};
    return names[static_cast<int>(level)];
}

}  // namespace crossbyte
