"""The arithmetic of a collection that is on many machines: small functions of plain numbers, in SI units.

Bytes, seconds, pairs; nothing is measured here. A machine holds one shard, and answers a query with all its
cores. What a function takes for granted stands in its docstring; docs/scale.md says which of it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

__all__ = [
    "Machine",
    "Shape",
    "cells_in",
    "core_rate",
    "fan_out_bytes",
    "fit_seconds",
    "items_per_machine",
    "machines_for_queries",
    "machines_to_hold",
    "merge_seconds",
    "network_seconds",
    "queries_per_second",
    "scan_seconds",
    "spread_seconds",
]


@dataclass(frozen=True)
class Machine:
    """A machine to rent: what one buys, and what is assumed of it.

    Attributes
    ----------
    cores : int
        Each as fast as the one measured on.
    memory : float
        Bytes.
    usable : float
        Share of the memory that an index may fill.
    memory_bandwidth : float
        Bytes per second that all cores together read.
    network : float
        Bytes per second.
    round_trip : float
        Seconds of an empty question and its answer.
    """

    cores: int = 16
    memory: float = 64e9
    usable: float = 0.7
    memory_bandwidth: float = 60e9
    network: float = 1.25e9
    round_trip: float = 0.5e-3


@dataclass(frozen=True)
class Shape:
    """What is searched, and how.

    Attributes
    ----------
    code_bytes : int
        Bytes of a code, which one query reads of each item that it visits.
    share : float
        Share of the items that a query visits: 1 is the exhaustive scan.
    efficiency : float
        What a further core adds, of what the first one does.
    """

    code_bytes: int
    share: float = 1.0
    efficiency: float = 1.0


# Holding


def items_per_machine(machine: Machine, bytes_per_pair: float) -> int:
    """Pairs whose index fits into the usable memory of one machine."""
    return int(machine.memory * machine.usable / bytes_per_pair)


def machines_to_hold(pairs: float, machine: Machine, bytes_per_pair: float, replicas: int = 1) -> int:
    """Machines whose memories together hold every pair ``replicas`` times; at least one of each replica."""
    return replicas * max(1, ceil(pairs / items_per_machine(machine, bytes_per_pair)))


# Searching


def core_rate(machine: Machine, efficiency: float) -> float:
    """How many times as fast as one core all of them are."""
    return 1 + (machine.cores - 1) * efficiency


def scan_seconds(items: float, seconds_per_item: float, machine: Machine, shape: Shape) -> float:
    """Seconds of one query over the items of a machine, alone on it: the slower of cores and memory.

    ``seconds_per_item`` is that of one core for one query.
    """
    visited = items * shape.share
    by_cores = visited * seconds_per_item / core_rate(machine, shape.efficiency)
    return max(by_cores, visited * shape.code_bytes / machine.memory_bandwidth)


def cells_in(items: float) -> float:
    """Cells of an index by default, which all its shards have: four times the root of its items.

    At most as many as two bytes can number.
    """
    return min(65_536.0, 4 * items**0.5)


def queries_per_second(
    core_seconds: float, machine: Machine, efficiency: float, bytes_read: float = 0.0
) -> float:
    """Queries that a machine answers over its shard, each one core's work, unless memory is the limit.

    ``bytes_read`` are those of one query; 0 where a batch reads the same codes for many.
    """
    by_cores = core_rate(machine, efficiency) / core_seconds
    return min(by_cores, machine.memory_bandwidth / bytes_read) if bytes_read else by_cores


def machines_for_queries(rate: float, each: float, shards: int, replicas: int) -> int:
    """Machines for ``rate`` queries per second: whole copies of ``shards`` machines, ``replicas`` at least.

    All machines of a copy work on every query, so that a copy answers as many as one of them: ``each``.
    """
    return shards * max(replicas, ceil(rate / each))


# Between machines


def fan_out_bytes(shards: int, k: int, query_bytes: float, hit_bytes: float) -> float:
    """Bytes that one query sends and receives: a question to every shard, k hits from each."""
    return shards * (query_bytes + k * hit_bytes)


def network_seconds(n_bytes: float, machine: Machine) -> float:
    """Seconds until an answer of ``n_bytes`` is there, through one machine's network."""
    return machine.round_trip + n_bytes / machine.network


def merge_seconds(shards: int, k: int, seconds_per_hit: float) -> float:
    """Seconds of one core to put the hits of all shards into one order."""
    return shards * k * seconds_per_hit


# Building


def fit_seconds(pairs: float, core_seconds_per_pair: float, cores: int) -> float:
    """Seconds of a fit, every core with its blocks: linear in the pairs, nothing lost between machines."""
    return pairs * core_seconds_per_pair / cores


def spread_seconds(
    pairs: float, core_seconds_per_pair: float, machine: Machine, machines: int, efficiency: float
) -> float:
    """Seconds to do something for every pair on its own, spread over machines."""
    return pairs * core_seconds_per_pair / (machines * core_rate(machine, efficiency))
