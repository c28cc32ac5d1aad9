// Parts of one piece of work, each in a thread of its own; the first in the calling one.
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

// Calls work(part) for every part; what one throws is thrown here, once all have ended.
template <typename Work>
void in_parts(int64_t n_parts, const Work& work) {
    std::vector<std::exception_ptr> failures(n_parts);
    std::vector<std::thread> threads;
    const auto guarded = [&](int64_t part) {
        try {
            work(part);
        } catch (...) {
            failures[part] = std::current_exception();
        }
    };
    for (int64_t part = 1; part < n_parts; ++part) threads.emplace_back(guarded, part);
    guarded(0);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}
