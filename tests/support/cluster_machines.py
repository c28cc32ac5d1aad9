"""A process of its own with a Ray of several machines (all of them here), one of which is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.cluster_utils import Cluster

from crossbyte.compute.ray_workers import RayWorkers

N_ROWS = 40_000


def one_more_than_twice(workers: RayWorkers, rows: Any) -> Any:
    """In two steps: what the first one gave is dropped, and has to be computed again after the loss."""
    doubled = workers.rows(lambda block: rows[block] * 2, N_ROWS, (64,), np.float32)
    return workers.rows(lambda block: doubled[block] + 1, N_ROWS, (64,), np.float32)


def main() -> None:
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    lost = machines.add_node(num_cpus=2)
    rows = np.random.default_rng(0).standard_normal((N_ROWS, 64)).astype(np.float32)
    with RayWorkers(machines.address) as workers:
        assert workers.n_jobs == 2
        more = one_more_than_twice(workers, workers.hold(rows))
        machines.remove_node(lost, allow_graceful=False)
        machines.add_node(num_cpus=2)
        total = workers.total(lambda block: more[block].sum(dtype=np.float64), N_ROWS)
        assert (more[:] == rows * 2 + 1).all()
        print("equal", total == workers.local.total(lambda block: more[block].sum(dtype=np.float64), N_ROWS))
    machines.shutdown()


if __name__ == "__main__":
    main()
