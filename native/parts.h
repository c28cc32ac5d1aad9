// Parts of one piece of work, each in a thread of its own; the first in the calling one, and all others for
// which the system has no thread.
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

// Calls work(part) for every part; what one throws is thrown here, once all have ended.
template <typename Work>
void in_parts(int64_t n_parts, const Work& work) {
    std::vector<std::exception_ptr> failures(n_parts);
    std::vector<std::thread> threads;
    threads.reserve(n_parts);
    const auto guarded = [&](int64_t part) {
        try {
            work(part);
        } catch (...) {
            failures[part] = std::current_exception();
        }
    };
    int64_t begun = 1;
    try {
        for (; begun < n_parts; ++begun) threads.emplace_back(guarded, begun);
    } catch (const std::system_error&) {  // no more threads; those that run must be joined all the same
    }
    guarded(0);
    for (; begun < n_parts; ++begun) guarded(begun);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}
