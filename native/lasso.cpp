#include "lasso.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "dispatch.h"

namespace crossbyte {
namespace {

constexpr int kMaxRounds = 100;  // active-set rounds; a handful is usual
constexpr int kMaxSweeps = 500;  // coordinate sweeps within a round
constexpr int kMaxPatientSweeps = 20000;
constexpr float kPenaltyFloor = 1e-3f;
constexpr int64_t kLanes = 16;

template <typename Real>
CROSSBYTE_INLINE Real shrink(Real value, Real by) {
    if (value > by) return value - by;
    if (value < -by) return value + by;
    return 0;
}

// The lasso of a few atoms.
template <typename Real>
struct Small {
    std::vector<Real> gram;                    // [n, n]
    std::vector<Real> inverse, corr, weights;  // [n]; one over the diagonal, c, s
};

CROSSBYTE_INLINE float largest_size(const float* values, int64_t n) {
    float lanes[kLanes] = {};
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes)
        for (int64_t l = 0; l < kLanes; ++l) {
            const float size = std::fabs(values[j + l]);
            lanes[l] = size > lanes[l] ? size : lanes[l];
        }
    for (; j < n; ++j) lanes[0] = std::max(lanes[0], std::fabs(values[j]));
    return *std::max_element(lanes, lanes + kLanes);
}

// One sample: the atoms in use, their weights, and what of q they leave unexplained (c = q - G s).
struct Sample {
    int64_t n_atoms;
    const float* gram;
    std::vector<int32_t> active;
    std::vector<float> weights;       // of the active atoms
    std::vector<float> correlations;  // [n_atoms], c
    std::vector<char> is_active;      // [n_atoms]
    Small<float> single_precision;    // of the active atoms
    Small<double> double_precision;
    std::vector<std::pair<float, int32_t>> violators;

    Sample(int64_t n, const float* g) : n_atoms(n), gram(g), correlations(n), is_active(n, 0) {}
};

// c = q - G s, four atoms at a time so that c is read and written less often.
CROSSBYTE_INLINE void recompute_correlations(Sample& s, const float* q) {
    float* __restrict c = s.correlations.data();
    const int64_t n = s.n_atoms;
    std::copy(q, q + n, c);
    size_t a = 0;
    for (; a + 4 <= s.active.size(); a += 4) {
        const float* __restrict r0 = s.gram + s.active[a] * n;
        const float* __restrict r1 = s.gram + s.active[a + 1] * n;
        const float* __restrict r2 = s.gram + s.active[a + 2] * n;
        const float* __restrict r3 = s.gram + s.active[a + 3] * n;
        const float w0 = s.weights[a], w1 = s.weights[a + 1], w2 = s.weights[a + 2], w3 = s.weights[a + 3];
        for (int64_t j = 0; j < n; ++j) c[j] -= (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j]);
    }
    for (; a < s.active.size(); ++a) {
        const float* __restrict row = s.gram + s.active[a] * n;
        const float weight = s.weights[a];
        for (int64_t j = 0; j < n; ++j) c[j] -= weight * row[j];
    }
}

CROSSBYTE_INLINE void drop_zero_weights(Sample& s) {
    size_t kept = 0;
    for (size_t a = 0; a < s.active.size(); ++a) {
        if (s.weights[a] == 0.0f) {
            s.is_active[s.active[a]] = 0;
            continue;
        }
        s.active[kept] = s.active[a];
        s.weights[kept++] = s.weights[a];
    }
    s.active.resize(kept);
    s.weights.resize(kept);
}

// Takes in the strongest violators, at most as many as are active (at least 8): most of the atoms
// that violate at first would end at zero again.
CROSSBYTE_INLINE bool add_violators(Sample& s, float bound) {
    s.violators.clear();
    const float* c = s.correlations.data();
    const auto judge = [&](int64_t j) {
        const float size = std::fabs(c[j]);
        if (size > bound && !s.is_active[j]) s.violators.emplace_back(-size, static_cast<int32_t>(j));
    };
    int64_t j = 0;
    for (; j + kLanes <= s.n_atoms; j += kLanes) {
        int any = 0;  // most groups of atoms hold no violator
        for (int64_t l = 0; l < kLanes; ++l) any |= std::fabs(c[j + l]) > bound;
        if (!any) continue;
        for (int64_t l = 0; l < kLanes; ++l) judge(j + l);
    }
    for (; j < s.n_atoms; ++j) judge(j);
    const size_t take = std::min(s.violators.size(), std::max<size_t>(8, s.active.size()));
    std::partial_sort(s.violators.begin(), s.violators.begin() + take, s.violators.end());
    for (size_t v = 0; v < take; ++v) {
        s.active.push_back(s.violators[v].second);
        s.weights.push_back(0.0f);
        s.is_active[s.violators[v].second] = 1;
    }
    return take > 0;
}

// The problem of the active atoms alone.
template <typename Real>
CROSSBYTE_INLINE void gather_small_problem(const Sample& s, const float* q, Small<Real>& small) {
    const size_t n = s.active.size();
    small.gram.resize(n * n);
    small.corr.resize(n);
    small.inverse.resize(n);
    small.weights.assign(s.weights.begin(), s.weights.end());
    for (size_t a = 0; a < n; ++a) {
        const float* row = s.gram + s.active[a] * s.n_atoms;
        Real left = q[s.active[a]];
        for (size_t b = 0; b < n; ++b) {
            small.gram[a * n + b] = row[s.active[b]];
            left -= small.weights[b] * small.gram[a * n + b];
        }
        small.corr[a] = left;
        const Real curvature = small.gram[a * n + a];
        small.inverse[a] = curvature > 0 ? 1 / curvature : 0;
    }
}

// Cyclic coordinate descent on the active atoms until no step moves c by more than `tolerance`.
template <typename Real>
CROSSBYTE_INLINE void descend(Small<Real>& small, Real z, Real tolerance, int max_sweeps) {
    const size_t n = small.corr.size();
    Real* __restrict c = small.corr.data();
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
        Real largest = 0;
        for (size_t a = 0; a < n; ++a) {
            const Real* __restrict row = small.gram.data() + a * n;
            const Real old = small.weights[a];
            const Real updated = shrink(c[a] + row[a] * old, z) * small.inverse[a];
            const Real step = updated - old;
            if (step == 0) continue;
            small.weights[a] = updated;
            for (size_t b = 0; b < n; ++b) c[b] -= step * row[b];
            largest = std::max(largest, std::fabs(step) * row[a]);
        }
        if (largest <= tolerance) return;
    }
}

template <typename Real>
CROSSBYTE_INLINE double largest_violation(const Small<Real>& small, double z) {
    double largest = 0.0;
    for (size_t a = 0; a < small.corr.size(); ++a) {
        const double c = small.corr[a], w = small.weights[a];
        const double violation = w == 0 ? std::fabs(c) - z : std::fabs(c - (w > 0 ? z : -z));
        largest = std::max(largest, violation);
    }
    return largest;
}

// Single precision does it nearly always; with nearly dependent atoms and a small penalty it stalls
// short of the optimum, and double precision goes on from there.
CROSSBYTE_INLINE void solve_active(Sample& s, const float* q, float z, float slack) {
    gather_small_problem(s, q, s.single_precision);
    descend(s.single_precision, z, 0.5f * slack, kMaxSweeps);
    s.weights.assign(s.single_precision.weights.begin(), s.single_precision.weights.end());
    gather_small_problem(s, q, s.double_precision);
    if (largest_violation(s.double_precision, z) <= slack) return;
    descend<double>(s.double_precision, z, 0.25 * slack, kMaxPatientSweeps);
    s.weights.assign(s.double_precision.weights.begin(), s.double_precision.weights.end());
}

CROSSBYTE_INLINE bool is_finite(const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float each) { return std::isfinite(each); });
}

CROSSBYTE_INLINE void solve(Sample& s, const float* q, float z, float tolerance) {
    const float slack = tolerance * std::max(z, kPenaltyFloor * largest_size(q, s.n_atoms));
    recompute_correlations(s, q);
    for (int round = 0; round < kMaxRounds; ++round) {
        const bool grew = add_violators(s, z + slack);
        if (!grew && round > 0) return;
        solve_active(s, q, z, slack);
        drop_zero_weights(s);
        recompute_correlations(s, q);
        if (!is_finite(s.weights)) return;  // a sum has overflowed, and no sweep would mend that
    }
}

CROSSBYTE_INLINE void load_start(Sample& s, const SparseRows& start, int64_t i) {
    for (int32_t j : s.active) s.is_active[j] = 0;
    s.active.assign(start.indices + start.indptr[i], start.indices + start.indptr[i + 1]);
    s.weights.assign(start.values + start.indptr[i], start.values + start.indptr[i + 1]);
    for (int32_t j : s.active) s.is_active[j] = 1;
}

// Stored in the order of the atoms, whatever order the active set found them in.
CROSSBYTE_INLINE void store(const Sample& s, SparseRowsResult& result) {
    std::vector<std::pair<int32_t, float>> entries;
    for (size_t a = 0; a < s.active.size(); ++a) entries.emplace_back(s.active[a], s.weights[a]);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [atom, weight] : entries) {
        result.indices.push_back(atom);
        result.values.push_back(weight);
    }
    if (result.indices.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        throw std::length_error("expected at most 2**31 - 1 weights in one call; give fewer rows");
    result.indptr.push_back(static_cast<int32_t>(result.indices.size()));
}

CROSSBYTE_INLINE void lasso_body(const float* gram, const float* products, const float* penalty,
                                 SparseRows start, int64_t n, int64_t n_atoms, float tolerance,
                                 SparseRowsResult& result) {
    Sample sample(n_atoms, gram);
    result.indptr.assign(1, 0);
    for (int64_t i = 0; i < n; ++i) {
        load_start(sample, start, i);
        solve(sample, products + i * n_atoms, penalty[i], tolerance);
        store(sample, result);
    }
}

}  // namespace

CROSSBYTE_DISPATCH(void, lasso,
                   (const float* gram, const float* products, const float* penalty, SparseRows start,
                    int64_t n, int64_t n_atoms, float tolerance, SparseRowsResult& result),
                   (gram, products, penalty, start, n, n_atoms, tolerance, result))

}  // namespace crossbyte
