// A float and a place in one integer whose order is theirs: one comparison instead of two, and ties go to
// the first place.
#pragma once

#include <cstdint>
#include <cstring>

#include "dispatch.h"

namespace crossbyte {

CROSSBYTE_INLINE uint64_t key_of(float value, int64_t place) {
    const float plain = value + 0.0f;  // makes -0 and 0 the tie that they are
    uint32_t bits;
    std::memcpy(&bits, &plain, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;  // negative floats grow downwards
    return static_cast<uint64_t>(bits) << 32 | static_cast<uint64_t>(place);
}

CROSSBYTE_INLINE float value_of(uint64_t key) {
    uint32_t bits = static_cast<uint32_t>(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    float value;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

CROSSBYTE_INLINE int64_t place_of(uint64_t key) {
    return static_cast<int64_t>(key & 0xffffffffu);
}

}  // namespace crossbyte
