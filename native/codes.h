// Codes of the additive quantizer: beam search, and iterated conditional modes (the P step, Sec. 4.2).
#pragma once

#include <cstdint>

namespace crossbyte {

constexpr int64_t kWords = 256;        // codewords per codebook: a code is one byte
constexpr int32_t kRoughRange = 4000;  // the rounded products of one word with one of each codebook before

struct Codebooks {
    const float* words_by_dim;  // [M, d, K]
    const double* words;        // [M, K, d], the same in full precision for the last judgement
    const float* gram;          // [M, M, K, K]: <word k of codebook m, word c of j> at (m, j, c, k)
    const int16_t*
        rough;           // [M (M - 1) / 2, K, K]: twice those of codebooks j < m, (j, m) at m (m - 1) / 2 + j
    const float* units;  // [M]: what a step of them means, with the words of codebook m
    int64_t n_codebooks;  // M
    int64_t n_dims;       // d
};

// mu (cross - epsilon)^2 of one item.
struct CrossPenalty {
    double weight;   // mu
    double epsilon;  // the wanted value of the cross term
};

struct BeamEffort {
    int64_t width;       // prefixes that are kept
    int64_t max_sweeps;  // of icm over what was found
};

// Each row minimises  |t - sum of its words|^2 + mu (cross - epsilon)^2.
// icm improves the given codes one codebook after another and never makes a row worse;
// beam_search finds codes from nothing, codebook by codebook.
void icm(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n, int64_t max_sweeps,
         uint8_t* codes);
void beam_search(const Codebooks& books, const float* targets, CrossPenalty penalty, int64_t n,
                 BeamEffort effort, uint8_t* codes);

}  // namespace crossbyte
