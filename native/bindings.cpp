// What Python sees of the kernels: array checks, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "codebooks.h"
#include "codes.h"
#include "dispatch.h"
#include "lasso.h"
#include "product.h"
#include "router.h"
#include "scan.h"
#include "scan_bounds.h"
#include "search.h"
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

// A router and the arrays that it looks at.
class RouterOwner {
  public:
    RouterOwner(Array<const float, 2> points, Array<const float, 1> offsets)
        : points_(std::move(points)), offsets_(std::move(offsets)) {
        require(offsets_.shape(0) == points_.shape(0), "one offset per cell");
        require(points_.shape(0) < (size_t{1} << 32), "the numbers of cells must fit into 32 bits");
        require_aligned(points_, offsets_);
        nb::gil_scoped_release release;
        router_ = std::make_unique<const Router>(points_.data(), offsets_.data(),
                                                 static_cast<int64_t>(points_.shape(0)),
                                                 static_cast<int64_t>(points_.shape(1)));
    }
    const Router& router() const { return *router_; }
    void choose(Array<const float, 2> queries, Array<int64_t, 2> cells) const {
        require(queries.shape(1) == points_.shape(1), "queries must have the dimensions of the cells");
        require(cells.shape(0) == queries.shape(0), "cells must be (queries, count)");
        require(cells.shape(1) <= points_.shape(0), "no more cells than there are");
        require_aligned(queries, cells);
        nb::gil_scoped_release release;
        const int64_t count = static_cast<int64_t>(cells.shape(1));
        for (int64_t q = 0; q < static_cast<int64_t>(queries.shape(0)); ++q)
            router_->choose(queries.data() + q * router_->n_dims(), count, cells.data() + q * count);
    }

  private:
    Array<const float, 2> points_;
    Array<const float, 1> offsets_;
    std::unique_ptr<const Router> router_;
};

using Levels = std::optional<Array<const float, 1>>;
using QuantizerArrays = std::tuple<Array<const float, 3>, Levels, double>;
using RunArrays = std::tuple<Array<const uint8_t, 3>, Array<const uint32_t, 1>, Array<const int64_t, 1>>;
using Codes = Array<const uint8_t, 3>;
using Steps = std::variant<std::monostate, Array<const uint32_t, 1>, Array<const uint64_t, 1>>;

// Which part, what is added to its distances, a bit per row, and how many cells are visited.
using AskedArrays = std::tuple<int64_t, double, Array<const uint64_t, 1>, int64_t>;

// What does not change from query to query: the documents of one generation, for one kind of query and
// target.
class Searcher {
  public:
    explicit Searcher(const std::vector<QuantizerArrays>& quantizers) {
        for (const QuantizerArrays& each : quantizers) add_quantizer(each);
    }

    void add_part(int64_t coding, const std::vector<std::pair<int64_t, Codes>>& sides, int64_t n_items,
                  int64_t first, const Steps& steps, const RouterOwner* router,
                  const std::vector<RunArrays>& runs) {
        require(coding >= 0 && coding < 256, "a coding must fit into a byte");
        require(sides.size() == 1 || sides.size() == 2, "one side, or two");
        require(n_items >= 0 && n_items < (int64_t{1} << 32), "n_items must fit into 32 bits");
        Part part{static_cast<uint8_t>(coding), {}, n_items, {first, nullptr, nullptr}, nullptr, {}};
        for (const auto& [quantizer, codes] : sides) {
            require(quantizer >= 0 && quantizer < static_cast<int64_t>(space_.quantizers.size()),
                    "sides must name their quantizer");
            require_codes(codes, quantizer, n_items);
            part.sides.push_back({quantizer, codes.data()});
        }
        set_steps(part, steps);
        if (router != nullptr) {
            require(sides.size() == 1, "cells are of one side");
            require(router->router().n_dims() == space_.n_dims,
                    "cells must have the dimensions of the words");
            part.router = &router->router();
        }
        for (const RunArrays& run : runs) part.runs.push_back(run_of(run, part));
        held_.emplace_back(sides, steps, runs);
        space_.parts.push_back(part);
    }

    // Counts, numbers, rows, distances and codings, one after the other in one piece of memory.
    nb::bytearray search(Array<const float, 2> points, const std::vector<AskedArrays>& asked, int64_t k,
                         float max_distance, float farthest, int64_t n_threads) const {
        require(static_cast<int64_t>(points.shape(1)) == space_.n_dims,
                "points must have the words' dimensions");
        require(k > 0 && n_threads > 0, "k and n_threads must be positive");
        require_aligned(points);
        for (size_t i = 0; i < points.size(); ++i)
            if (!(std::fabs(points.data()[i]) <= farthest)) throw std::overflow_error("points lie too far");
        std::vector<AskedPart> parts;
        for (const auto& each : asked) parts.push_back(asked_part(each));
        const PointQueries queries{points.data(), static_cast<int64_t>(points.shape(0)), k, max_distance,
                                   std::min(n_threads, kMostThreads)};
        std::vector<std::vector<FoundDocument>> found;
        {
            nb::gil_scoped_release release;
            found = crossbyte::search(space_, parts, queries);
        }
        return as_bytes(found);
    }

  private:
    void add_quantizer(const QuantizerArrays& arrays) {
        const auto& [words, levels, epsilon] = arrays;
        const int64_t n_dims = static_cast<int64_t>(words.shape(1));
        require(words.shape(2) == kWords, "a codebook has 256 words");
        require(words.shape(0) > 0, "one codebook at least");
        require(space_.quantizers.empty() || n_dims == space_.n_dims,
                "all words must have the same dimensions");
        require(!levels || levels->shape(0) == kWords, "levels must be 256");
        require_aligned(words);
        if (levels) require_aligned(*levels);
        space_.n_dims = n_dims;
        space_.quantizers.push_back({words.data(), levels ? levels->data() : nullptr,
                                     static_cast<int64_t>(words.shape(0)), static_cast<float>(epsilon)});
        words_.push_back(arrays);
    }
    void require_codes(const Codes& codes, int64_t quantizer, int64_t n_items) const {
        const Quantizer& own = space_.quantizers[quantizer];
        const int64_t n_tables = own.n_codebooks + (own.cross_levels != nullptr);
        require(static_cast<int64_t>(codes.shape(0)) == (n_items + kBlock - 1) / kBlock &&
                    static_cast<int64_t>(codes.shape(1)) == n_tables && codes.shape(2) == kBlock,
                "codes must be (blocks, M, 64)");
    }
    static void set_steps(Part& part, const Steps& steps) {
        const auto checked = [&part](const auto& array) {
            require(static_cast<int64_t>(array.shape(0)) == part.n_items, "one step per document");
            require_aligned(array);
            return array.data();
        };
        if (const auto* narrow = std::get_if<1>(&steps)) part.numbers.steps32 = checked(*narrow);
        if (const auto* wide = std::get_if<2>(&steps)) part.numbers.steps64 = checked(*wide);
    }
    CellRun run_of(const RunArrays& arrays, const Part& part) const {
        const auto& [codes, rows, starts] = arrays;
        require(part.router != nullptr, "inverted lists need a router");
        require_codes(codes, part.sides[0].quantizer, static_cast<int64_t>(rows.shape(0)));
        require(static_cast<int64_t>(starts.shape(0)) == part.router->n_cells() + 1,
                "starts must have one more than there are cells");
        require_aligned(rows, starts);
        return {codes.data(), rows.data(), starts.data(), static_cast<int64_t>(rows.shape(0)),
                part.router->n_cells()};
    }
    AskedPart asked_part(const AskedArrays& arrays) const {
        const auto& [number, extra, allowed, n_probe] = arrays;
        require(number >= 0 && number < static_cast<int64_t>(space_.parts.size()), "parts must be parts");
        const Part& part = space_.parts[number];
        require(static_cast<int64_t>(allowed.shape(0)) == (part.n_items + kBlock - 1) / kBlock,
                "allowed must have a word per block");
        require_aligned(allowed);
        require(n_probe == 0 || (part.router != nullptr && n_probe > 0 && n_probe <= part.router->n_cells()),
                "n_probe must be a number of cells");
        return {&part, static_cast<float>(extra), allowed.data(), n_probe};
    }
    static nb::bytearray as_bytes(const std::vector<std::vector<FoundDocument>>& found) {
        size_t total = 0;
        for (const auto& each : found) total += each.size();
        nb::bytearray bytes(nullptr, 8 * found.size() + (8 + 8 + 4 + 1) * total);
        auto* counts = static_cast<int64_t*>(bytes.data());
        int64_t* numbers = counts + found.size();
        int64_t* rows = numbers + total;
        auto* distances = reinterpret_cast<float*>(rows + total);
        auto* codings = reinterpret_cast<uint8_t*>(distances + total);
        for (const auto& each : found) {
            *counts++ = static_cast<int64_t>(each.size());
            for (const FoundDocument& document : each) {
                *numbers++ = document.number;
                *rows++ = document.row;
                *distances++ = document.distance;
                *codings++ = document.coding;
            }
        }
        return bytes;
    }

    SearchSpace space_{};
    std::vector<QuantizerArrays> words_;  // what the space looks at
    std::vector<std::tuple<std::vector<std::pair<int64_t, Codes>>, Steps, std::vector<RunArrays>>> held_;
};

// Texts of some rows, of a text that has them all one after the other.
static nb::list take_texts(nb::bytes text, Array<const int64_t, 1> ends, Array<const int64_t, 1> rows) {
    require_aligned(ends, rows);
    const int64_t n = static_cast<int64_t>(ends.shape(0)), size = static_cast<int64_t>(text.size());
    const int64_t* end_of = ends.data();
    // Rows lie anywhere in memory: all are on their way before the first is waited for.
    const auto each = [&](const auto& use) {
        for (size_t i = 0; i < rows.shape(0); ++i) use(rows.data()[i]);
    };
    each([&](int64_t row) {
        require(row >= 0 && row < n, "rows must be rows");
        prefetch(end_of + row);
    });
    const auto start_of = [&](int64_t row) { return row > 0 ? end_of[row - 1] : 0; };
    each([&](int64_t row) {
        require(start_of(row) >= 0 && start_of(row) <= end_of[row] && end_of[row] <= size,
                "ends must be places of the text");
        prefetch(text.c_str() + start_of(row));
    });
    nb::list texts;
    each([&](int64_t row) {
        texts.append(nb::str(text.c_str() + start_of(row), static_cast<size_t>(end_of[row] - start_of(row))));
    });
    return texts;
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
    nb::class_<RouterOwner>(m, "Router")
        .def(nb::init<Array<const float, 2>, Array<const float, 1>>(), array("points"), array("offsets"))
        .def("choose", &RouterOwner::choose, array("queries"), array("cells"));
    nb::class_<Searcher>(m, "Searcher")
        .def(nb::init<const std::vector<QuantizerArrays>&>(), array("quantizers"))
        .def("add_part", &Searcher::add_part, "coding"_a, array("sides"), "n_items"_a, "first"_a,
             array("steps").none(), nb::arg("router").none(), array("runs"), nb::keep_alive<1, 7>())
        .def("search", &Searcher::search, array("points"), array("asked"), "k"_a, "max_distance"_a,
             "farthest"_a, "n_threads"_a);
    m.def("take_texts", &take_texts, "text"_a, array("ends"), array("rows"));
    m.def("level", [] { return std::string(level_name(level())); });
    m.def("limit_level", &limit_level_py);
}
