"""Internet scale on paper: what 10 million to 10 billion pairs would take, from figures of one core.

    python -m benchmarks.paper_scale               # measures, about two minutes, and writes docs/scale.md
    python -m benchmarks.paper_scale --tables      # from what was measured before, and by other benchmarks
    python -m benchmarks.paper_scale --tables --cores 64 --memory-gb 512 --print

Nothing here was run at these sizes. docs/scale.md says what is measured, computed and assumed.
"""

from __future__ import annotations

import argparse

from benchmarks.paper_arithmetic import Machine
from benchmarks.paper_inputs import read_figures
from benchmarks.paper_tables import Assumptions, tables
from benchmarks.summary import ROOT, replace
from benchmarks.tables import print_table, save
from crossbyte.compute.kernels import implementation


def parse() -> argparse.Namespace:
    """Read the command line."""
    plain = Machine()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--print", action="store_true", help="print the tables instead of writing the page")
    parser.add_argument("--cores", type=int, default=plain.cores)
    parser.add_argument("--memory-gb", type=float, default=plain.memory / 1e9)
    parser.add_argument("--usable", type=float, default=plain.usable)
    parser.add_argument("--memory-gb-per-second", type=float, default=plain.memory_bandwidth / 1e9)
    parser.add_argument("--network-gbit", type=float, default=8 * plain.network / 1e9)
    parser.add_argument("--round-trip-ms", type=float, default=1e3 * plain.round_trip)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--queries", type=float, default=1000.0)
    return parser.parse_args()


def read_assumptions(options: argparse.Namespace) -> Assumptions:
    """The options in SI units."""
    machine = Machine(
        cores=options.cores,
        memory=1e9 * options.memory_gb,
        usable=options.usable,
        memory_bandwidth=1e9 * options.memory_gb_per_second,
        network=1e9 * options.network_gbit / 8,
        round_trip=1e-3 * options.round_trip_ms,
    )
    return Assumptions(machine, options.replicas, options.queries)


def main() -> None:
    """Measure, keep, compute, and write the page."""
    options = parse()
    if not options.tables:
        from benchmarks.paper_measuring import SETTINGS, measure

        entries = measure()
        print_table("Figures of one core", [entry for entry in entries if len(entry.values) < 100])
        save("paper_scale", entries, SETTINGS | {"kernels": implementation()})
    written = tables(read_figures(), read_assumptions(options))
    if options.print:
        print("\n".join(f"{mark}\n\n{table}" for mark, table in written.items()))
    else:
        replace(ROOT / "docs" / "scale.md", written)


if __name__ == "__main__":
    main()
