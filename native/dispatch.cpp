#include "dispatch.h"

#include <atomic>

namespace crossbyte {

namespace {
std::atomic<int> highest{static_cast<int>(Level::avx2)};
}

Level best_level() {
#if CROSSBYTE_HAS_AVX2
    return __builtin_cpu_supports("avx2") ? Level::avx2 : Level::portable;
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

}  // namespace crossbyte
