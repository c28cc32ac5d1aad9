"""Four shards beside one index: the same bits for 1,000 queries, and what asking them costs per query.

    python -m benchmarks.sharded                      # 10M items, M = 8, on a quiet machine
    python -m benchmarks.sharded --items 1000000      # smaller

Items as in ``benchmarks.large``. Every shard is held by a Ray actor of this machine, with one thread. Queries
come one by one. A shard tells how long it took itself; the overhead of a query is its whole time, from its
features to ids and distances, less that of the slowest shard: mapping the query, Ray's calls, and merging.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS, Coded, coded_items
from benchmarks.large import N_BITS, N_CODED, N_ITEMS, build
from benchmarks.tables import Measurement, save
from benchmarks.timing import Goal, keep_wanted, print_goals
from crossbyte import Hits, Index
from crossbyte.compute.kernels import implementation
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.pool import ShardPool
from crossbyte.sharding.split import split_index

N_SHARDS, N_QUERIES, SINGLES, K = 4, 1000, 300, 10


class TimedPool:
    """A pool of shards that notes how long the slowest one took, each time they rank."""

    def __init__(self, pool: ShardPool) -> None:
        self.names, self.lost, self.close = pool.names, pool.lost, pool.close
        self.slowest: list[float] = []
        self._pool = pool

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        """Pass a question on."""
        answers = self._pool.ask(method, calls, patient=patient)
        if method == "rank":
            self.slowest.append(max(found.seconds for found in answers.values()))
        return answers


def same_bits(index: Index, shards: ShardedIndex, coded: Coded) -> int:
    """Count the queries whose answers are equal bit for bit, asked in batches."""
    texts, equal = coded.texts[:N_QUERIES], 0
    for start in range(0, N_QUERIES, 100):
        some = texts[start : start + 100]
        pairs = zip(index.search(texts=some, k=K), shards.search(texts=some, k=K), strict=True)
        equal += sum(_bits(one) == _bits(other) for one, other in pairs)
    return equal


def _bits(hits: Hits) -> tuple[Any, ...]:
    return hits.ids, hits.distances.tobytes(), hits.numbers.tobytes(), hits.partial


def single_times(index: Any, texts: Sequence[Any]) -> list[float]:
    """Seconds of every query, asked one by one; some before are not counted."""
    for text in texts[:20]:
        index.search(texts=text, k=K)
    return list(_times(index, texts))


def _times(index: Any, texts: Sequence[Any]) -> Iterator[float]:
    for text in texts:
        start = time.perf_counter()
        index.search(texts=text, k=K)
        yield time.perf_counter() - start


def measure(path: Path, folder: Path, coded: Coded) -> tuple[list[Goal], dict[str, list[float]]]:
    """Compare the index with its shards."""
    texts = coded.one_by_one(SINGLES)
    with Index.open(path, n_jobs=1) as index, ShardedIndex.open(folder, cluster="local") as shards:
        equal = same_bits(index, shards, coded)
        alone = single_times(index, texts)
        shards._pool = watched = TimedPool(shards._pool)
        whole = single_times(shards, texts)
        slowest = watched.slowest[-SINGLES:]
    overhead = [one - other for one, other in zip(whole, slowest, strict=True)]
    goals = [
        Goal(f"{N_SHARDS} shards", f"answers of {N_QUERIES} equal bit for bit", equal, N_QUERIES),
        Goal("1 index, 1 thread", "milliseconds per query", 1e3 * median(alone)),
        Goal(f"{N_SHARDS} shards", "milliseconds per query", 1e3 * median(whole)),
        Goal("slowest shard", "milliseconds per query", 1e3 * median(slowest)),
        Goal("asking the shards", "milliseconds per query", 1e3 * median(overhead), 5.0, at_most=True),
        Goal("asking the shards", "milliseconds, 99 of 100", 1e3 * quantiles(overhead, n=100)[-1]),
    ]
    return goals, {"1 index, 1 thread": alone, f"{N_SHARDS} shards": whole, "slowest shard": slowest}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=N_ITEMS)
    parser.add_argument("--coded", type=int, default=N_CODED, help="how many of them by the model")
    options = parser.parse_args()
    coded = coded_items(min(options.coded, options.items), N_BITS)
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        path, folder = Path(name) / "index.cb", Path(name) / "index.cbs"
        build(path, coded, options.items)
        split_index(path, folder, N_SHARDS)
        goals, seconds = measure(path, folder, coded)
    goals = keep_wanted(goals, full_size=options.items == N_ITEMS)
    print_goals(f"{N_SHARDS} shards, {options.items:,} items, M={N_BITS // 8}, k={K}, wall time", goals)
    entries = [
        Measurement(system, "milliseconds, deciles", [1e3 * each for each in quantiles(values, n=10)])
        for system, values in seconds.items()
    ]
    entries += [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]
    asked = {"items": options.items, "coded": len(coded.codes), "bits": N_BITS, "k": K, "shards": N_SHARDS}
    if options.items == N_ITEMS:
        settings = SETTINGS | asked | {"singles": SINGLES, "kernels": implementation()}
        save("sharded", entries, settings)


if __name__ == "__main__":
    main()
