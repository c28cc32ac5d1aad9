// What Python sees of the kernels: array checks, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codebooks.h"
#include "codes.h"
#include "dispatch.h"
#include "lasso.h"
#include "product.h"
#include "scan.h"
#include "scan_bounds.h"
#include "tables.h"

namespace nb = nanobind;
using namespace crossbyte;
using namespace nanobind::literals;

template <typename T, int Dims>
using Array = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

static void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

constexpr int64_t kMostSweeps = int64_t{1} << 31;   // of coordinate descent over the codebooks
constexpr int64_t kWidestBeam = int64_t{1} << 16;   // a place in it must fit into 32 bits
constexpr int64_t kMostThreads = int64_t{1} << 10;  // more are never of use, and each has a stack

// NumPy hands out arrays that lie between the places of their type (`frombuffer` with an offset).
template <typename... Arrays>
static void require_aligned(const Arrays&... arrays) {
    const auto aligned = [](const auto& array) {
        return reinterpret_cast<uintptr_t>(array.data()) % array.itemsize() == 0;
    };
    require((aligned(arrays) && ...), "arrays must be aligned to their type; copy them");
}

template <typename Floats>
static bool is_finite(const Floats& array) {
    float zero = 0.0f;  // NaN as soon as one value is not finite
    for (size_t i = 0; i < array.size(); ++i) zero += array.data()[i] - array.data()[i];
    return zero == 0.0f;
}

// Hands a vector's memory to NumPy without a copy.
template <typename T>
static nb::object as_numpy(std::vector<T>&& values) {
    auto* owner = new std::vector<T>(std::move(values));
    nb::capsule guard(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owner->data(), {owner->size()}, guard));
}

static void require_sparse_rows(const Array<const int32_t, 1>& indptr, const Array<const int32_t, 1>& indices,
                                size_t n, size_t n_columns) {
    const int32_t* row = indptr.data();
    require(row[0] == 0 && static_cast<size_t>(row[n]) == indices.shape(0), "indptr must span indices");
    for (size_t i = 0; i < n; ++i) require(row[i] <= row[i + 1], "indptr must not fall");
    for (size_t k = 0; k < indices.shape(0); ++k)
        require(indices.data()[k] >= 0 && static_cast<size_t>(indices.data()[k]) < n_columns,
                "indices must be columns");
}

static nb::tuple lasso_py(Array<const float, 2> gram, Array<const float, 2> products,
                          Array<const float, 1> penalty, Array<const int32_t, 1> indptr,
                          Array<const int32_t, 1> indices, Array<const float, 1> values, float tolerance) {
    const size_t n = products.shape(0), n_atoms = products.shape(1);
    require(gram.shape(0) == n_atoms && gram.shape(1) == n_atoms, "gram must be n_atoms x n_atoms");
    require(penalty.shape(0) == n && indptr.shape(0) == n + 1, "one penalty and one start per row");
    require(indices.shape(0) == values.shape(0), "indices and values must have one length");
    require_aligned(gram, products, penalty, indptr, indices, values);
    require_sparse_rows(indptr, indices, n, n_atoms);
    require(is_finite(gram) && is_finite(products) && is_finite(penalty) && is_finite(values),
            "gram, products, penalty and values must be finite");
    require(std::isfinite(tolerance) && tolerance > 0, "tolerance must be positive and finite");
    SparseRowsResult result;
    {
        nb::gil_scoped_release release;
        lasso(gram.data(), products.data(), penalty.data(), {indptr.data(), indices.data(), values.data()},
              static_cast<int64_t>(n), static_cast<int64_t>(n_atoms), tolerance, result);
    }
    return nb::make_tuple(as_numpy(std::move(result.indptr)), as_numpy(std::move(result.indices)),
                          as_numpy(std::move(result.values)));
}

using Words = Array<const double, 3>;
using FloatCube = Array<const float, 3>;
using FloatRows = Array<const float, 2>;
using Gram = Array<const float, 4>;
using RoughProducts = Array<const int16_t, 3>;
using Units = Array<const float, 1>;
using CodeRows = Array<uint8_t, 2>;

static Codebooks books_of(const FloatCube& words_by_dim, const Words& words, const Gram& gram,
                          const RoughProducts& rough, const Units& units) {
    const size_t M = words.shape(0), K = words.shape(1), d = words.shape(2);
    require(K == kWords, "a codebook has 256 words");
    require(words_by_dim.shape(0) == M && words_by_dim.shape(1) == d && words_by_dim.shape(2) == K,
            "words_by_dim must be (M, d, K)");
    require(gram.shape(0) == M && gram.shape(1) == M && gram.shape(2) == K && gram.shape(3) == K,
            "gram must be (M, M, K, K)");
    require(rough.shape(0) == M * (M - (M > 0)) / 2 && rough.shape(1) == K && rough.shape(2) == K,
            "rough must be (M (M - 1) / 2, K, K)");
    require(units.shape(0) == M, "units must be (M,)");
    require_aligned(words_by_dim, words, gram, rough, units);
    return {words_by_dim.data(),     words.data(),           gram.data(), rough.data(), units.data(),
            static_cast<int64_t>(M), static_cast<int64_t>(d)};
}

static CrossPenalty penalty_of(double mu, double epsilon) {
    require(std::isfinite(mu) && std::isfinite(epsilon), "mu and epsilon must be finite");
    return {mu, epsilon};
}

static void require_coded(const Words& words, const FloatRows& targets, const CodeRows& codes) {
    require(targets.shape(1) == words.shape(2), "targets must have the dimensions of the words");
    require(codes.shape(0) == targets.shape(0) && codes.shape(1) == words.shape(0), "codes must be (n, M)");
    require_aligned(targets);
}

static void icm_py(FloatCube words_by_dim, Words words, Gram gram, RoughProducts rough, Units units,
                   FloatRows targets, double mu, double epsilon, int64_t max_sweeps, CodeRows codes) {
    const Codebooks books = books_of(words_by_dim, words, gram, rough, units);
    const CrossPenalty penalty = penalty_of(mu, epsilon);
    require_coded(words, targets, codes);
    require(max_sweeps > 0 && max_sweeps <= kMostSweeps, "max_sweeps must be from 1 to 2**31");
    nb::gil_scoped_release release;
    icm(books, targets.data(), penalty, static_cast<int64_t>(targets.shape(0)), max_sweeps, codes.data());
}

static void beam_search_py(FloatCube words_by_dim, Words words, Gram gram, RoughProducts rough, Units units,
                           FloatRows targets, double mu, double epsilon, int64_t width, int64_t max_sweeps,
                           CodeRows codes) {
    const Codebooks books = books_of(words_by_dim, words, gram, rough, units);
    const CrossPenalty penalty = penalty_of(mu, epsilon);
    require_coded(words, targets, codes);
    require(width > 0 && width <= kWidestBeam, "width must be from 1 to 2**16");
    require(max_sweeps >= 0 && max_sweeps <= kMostSweeps, "max_sweeps must be from 0 to 2**31");
    nb::gil_scoped_release release;
    beam_search(books, targets.data(), penalty, static_cast<int64_t>(targets.shape(0)), {width, max_sweeps},
                codes.data());
}

static double value_gradient_py(Array<const double, 3> words, Array<const uint8_t, 2> codes,
                                Array<const float, 2> targets, double mu, double epsilon,
                                Array<double, 3> gradient) {
    const size_t M = words.shape(0), K = words.shape(1), d = words.shape(2);
    require(K == kWords, "a codebook has 256 words");
    require(codes.shape(0) == targets.shape(0) && codes.shape(1) == M, "codes must be (n, M)");
    require(targets.shape(1) == d, "targets must have the dimensions of the words");
    require(gradient.shape(0) == M && gradient.shape(1) == K && gradient.shape(2) == d,
            "gradient must have the shape of the words");
    require_aligned(words, targets, gradient);
    nb::gil_scoped_release release;
    return codebook_value_gradient(words.data(), codes.data(), targets.data(), {mu, epsilon},
                                   static_cast<int64_t>(codes.shape(0)), static_cast<int64_t>(M),
                                   static_cast<int64_t>(d), gradient.data());
}

static void tables_py(Array<const float, 2> points, Array<const float, 3> words_by_dim,
                      Array<float, 3> tables) {
    const size_t M = words_by_dim.shape(0), d = words_by_dim.shape(1), K = words_by_dim.shape(2);
    require(K == kWords, "a codebook has 256 words");
    require(points.shape(1) == d, "points must have the dimensions of the words");
    require(tables.shape(0) == points.shape(0) && tables.shape(1) == M && tables.shape(2) == K,
            "tables must be (n, M, K)");
    require_aligned(points, words_by_dim, tables);
    nb::gil_scoped_release release;
    distance_tables(points.data(), words_by_dim.data(), static_cast<int64_t>(points.shape(0)),
                    static_cast<int64_t>(M), static_cast<int64_t>(d), tables.data());
}

static void product_py(Array<const double, 2> rows, Array<const double, 2> matrix, Array<double, 2> out) {
    const size_t n = rows.shape(0), d = rows.shape(1), k = matrix.shape(1);
    require(matrix.shape(0) == d, "the matrix must have a row per column");
    require(out.shape(0) == n && out.shape(1) == k, "out must be (n, k)");
    require_aligned(rows, matrix, out);
    nb::gil_scoped_release release;
    ordered_product(rows.data(), matrix.data(), static_cast<int64_t>(n), static_cast<int64_t>(d),
                    static_cast<int64_t>(k), out.data());
}

using ScanSide = std::tuple<Array<const uint8_t, 3>, Array<const float, 3>, Array<const float, 1>>;

static Source source_of(const ScanSide& side, size_t n_blocks, size_t n_queries) {
    const auto& [codes, tables, offsets] = side;
    const size_t M = codes.shape(1);
    require(codes.shape(0) == n_blocks && M > 0 && codes.shape(2) == kBlock, "codes must be (blocks, M, 64)");
    require(tables.shape(0) == n_queries && tables.shape(1) == M && tables.shape(2) == kWords,
            "tables must be (queries, M, 256)");
    require(offsets.shape(0) == n_queries, "offsets must be (queries,)");
    require_aligned(tables, offsets);
    return {codes.data(), tables.data(), offsets.data(), static_cast<int64_t>(M)};
}

static nb::tuple as_arrays(const std::vector<std::vector<Hit>>& found) {
    std::vector<int64_t> counts, rows;
    std::vector<float> distances;
    for (const std::vector<Hit>& hits : found) {
        counts.push_back(static_cast<int64_t>(hits.size()));
        for (const Hit& hit : hits) {
            distances.push_back(hit.distance);
            rows.push_back(hit.row);
        }
    }
    return nb::make_tuple(as_numpy(std::move(counts)), as_numpy(std::move(distances)),
                          as_numpy(std::move(rows)));
}

static void require_job(int64_t n_items, int64_t k, int64_t n_threads) {
    require(n_items >= 0 && k > 0 && n_threads > 0, "n_items, k and n_threads must be positive");
    require(n_items < (int64_t{1} << 32), "n_items must fit into 32 bits, as the numbers of rows do");
}

// What is looked for beyond all items is never found, and would only overflow.
static int64_t most_hits(int64_t k, int64_t n_items) {
    return std::min(k, std::max<int64_t>(1, n_items));
}

static nb::tuple scan_py(const std::vector<ScanSide>& sides, float extra,
                         std::optional<Array<const uint64_t, 1>> allowed, int64_t n_items, int64_t k,
                         float max_distance, int64_t n_threads) {
    require(sides.size() == 1 || sides.size() == 2, "one side, or two");
    require_job(n_items, k, n_threads);
    const size_t n_blocks = static_cast<size_t>((n_items + kBlock - 1) / kBlock);
    const size_t n_queries = std::get<1>(sides[0]).shape(0);
    require(!allowed || allowed->shape(0) == n_blocks, "allowed must have a word per block");
    if (allowed) require_aligned(*allowed);
    ScanJob job{{},
                extra,
                allowed ? allowed->data() : nullptr,
                n_items,
                static_cast<int64_t>(n_queries),
                most_hits(k, n_items),
                max_distance,
                std::min(n_threads, kMostThreads)};
    for (const ScanSide& side : sides) job.sources.push_back(source_of(side, n_blocks, n_queries));
    std::vector<std::vector<Hit>> found;
    {
        nb::gil_scoped_release release;
        found = scan(job);
    }
    return as_arrays(found);
}

static nb::tuple scan_cells_py(const ScanSide& side, Array<const uint32_t, 1> rows,
                               Array<const int64_t, 1> starts, Array<const int64_t, 2> cells, float extra,
                               std::optional<Array<const uint64_t, 1>> allowed, int64_t k, float max_distance,
                               int64_t n_threads) {
    const int64_t n_items = static_cast<int64_t>(rows.shape(0));
    const size_t n_blocks = static_cast<size_t>((n_items + kBlock - 1) / kBlock);
    const size_t n_queries = std::get<1>(side).shape(0);
    require_job(n_items, k, n_threads);
    require(starts.shape(0) > 0, "starts must have one more than there are cells");
    require(cells.shape(0) == n_queries, "cells must be (queries, visited)");
    require_aligned(rows, starts, cells);
    if (allowed) require_aligned(*allowed);
    const ScanJob job{{source_of(side, n_blocks, n_queries)},
                      extra,
                      allowed ? allowed->data() : nullptr,
                      n_items,
                      static_cast<int64_t>(n_queries),
                      most_hits(k, n_items),
                      max_distance,
                      std::min(n_threads, kMostThreads)};
    const Visits visits{rows.data(),
                        starts.data(),
                        static_cast<int64_t>(starts.shape(0)) - 1,
                        cells.data(),
                        static_cast<int64_t>(cells.shape(1)),
                        allowed ? static_cast<int64_t>(allowed->shape(0)) * kBlock : 0};
    std::vector<std::vector<Hit>> found;
    {
        nb::gil_scoped_release release;
        found = scan_cells(job, visits);
    }
    return as_arrays(found);
}

static void limit_level_py(const std::string& name) {
    for (const Level level : {Level::portable, Level::avx2, Level::avx512})
        if (name == level_name(level)) return limit_level(level);
    require(false, "level must be 'portable', 'avx2' or 'avx512'");
}

NB_MODULE(_native, m) {
    m.doc() = "crossbyte's kernels; crossbyte.compute.kernels is the door to them.";
    // noconvert: a wrong type or order is an error, never a silent copy (outputs would be lost in it).
    const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("lasso", &lasso_py, array("gram"), array("products"), array("penalty"), array("indptr"),
          array("indices"), array("values"), "tolerance"_a);
    m.def("icm", &icm_py, array("words_by_dim"), array("words"), array("gram"), array("rough"),
          array("units"), array("targets"), "mu"_a, "epsilon"_a, "max_sweeps"_a, array("codes"));
    m.def("beam_search", &beam_search_py, array("words_by_dim"), array("words"), array("gram"),
          array("rough"), array("units"), array("targets"), "mu"_a, "epsilon"_a, "width"_a, "max_sweeps"_a,
          array("codes"));
    m.def("codebook_value_gradient", &value_gradient_py, array("words"), array("codes"), array("targets"),
          "mu"_a, "epsilon"_a, array("gradient"));
    m.def("distance_tables", &tables_py, array("points"), array("words_by_dim"), array("tables"));
    m.def("ordered_product", &product_py, array("rows"), array("matrix"), array("out"));
    m.def("scan", &scan_py, array("sides"), "extra"_a, array("allowed").none(), "n_items"_a, "k"_a,
          "max_distance"_a, "n_threads"_a);
    m.def("scan_cells", &scan_cells_py, array("side"), array("rows"), array("starts"), array("cells"),
          "extra"_a, array("allowed").none(), "k"_a, "max_distance"_a, "n_threads"_a);
    m.def("level", [] { return std::string(level_name(level())); });
    m.def("limit_level", &limit_level_py);
}
