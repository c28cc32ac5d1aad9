"""Compare systems as the paper does: published methods, data sets, protocols, runs, reports.

Nothing but the command line imports the laboratory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.lab.datasets.collection import Collection, Part, make_collection, make_part
    from crossbyte.lab.datasets.loader import read_collection
    from crossbyte.lab.methods.method import Method
    from crossbyte.lab.methods.registry import about_method, list_keys, make_method
    from crossbyte.lab.protocols import make_trial
    from crossbyte.lab.report.write import write_report
    from crossbyte.lab.results import Result, Run, read_results
    from crossbyte.lab.run_plan import RunRequest, plan_runs
    from crossbyte.lab.runner import run_all

__all__ = [
    "Collection",
    "Method",
    "Part",
    "Result",
    "Run",
    "RunRequest",
    "about_method",
    "list_keys",
    "make_collection",
    "make_method",
    "make_part",
    "make_trial",
    "plan_runs",
    "read_collection",
    "read_results",
    "run_all",
    "write_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Collection": "crossbyte.lab.datasets.collection",
        "Method": "crossbyte.lab.methods.method",
        "Part": "crossbyte.lab.datasets.collection",
        "Result": "crossbyte.lab.results",
        "Run": "crossbyte.lab.results",
        "RunRequest": "crossbyte.lab.run_plan",
        "about_method": "crossbyte.lab.methods.registry",
        "list_keys": "crossbyte.lab.methods.registry",
        "make_collection": "crossbyte.lab.datasets.collection",
        "make_method": "crossbyte.lab.methods.registry",
        "make_part": "crossbyte.lab.datasets.collection",
        "make_trial": "crossbyte.lab.protocols",
        "plan_runs": "crossbyte.lab.run_plan",
        "read_collection": "crossbyte.lab.datasets.loader",
        "read_results": "crossbyte.lab.results",
        "run_all": "crossbyte.lab.runner",
        "write_report": "crossbyte.lab.report.write",
    },
)
