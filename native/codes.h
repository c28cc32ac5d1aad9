// Codes of the additive quantizer: beam search, and iterated conditional modes (the P step, Sec. 4.2).
#pragma once

#include <cstdint>

namespace crossbyte {

constexpr int64_t kWords = 256;  // codewords per codebook: a code is one byte

struct Codebooks {
    const float* words_by_dim;  // [M, d, K]
    const double* words;        // [M, K, d], the same in full precision for the last judgement
    const float* gram;          // [M K, M K], inner products of all codewords
    int64_t n_codebooks;        // M
    int64_t n_dims;             // d
};

// mu (cross - epsilon)^2 of one item.
struct CrossPenalty {
    double weight;   // mu
    double epsilon;  // the wanted value of the cross term
};

// Each row minimises  |t - sum of its words|^2 + mu (cross - epsilon)^2.
// icm improves the given codes one codebook after another and never makes a row worse;
// beam_search finds codes from nothing, codebook by codebook, keeping `width` prefixes.
void icm(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n, int64_t max_sweeps,
         uint8_t* codes);
void beam_search(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n, int64_t width,
                 uint8_t* codes);

}  // namespace crossbyte
