"""Many runs: those done already are left, the rest is done here, in several processes, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from crossbyte._format import plural
from crossbyte.data.collections.collection import Collection
from crossbyte.errors import FitInterrupted, InvalidInput, TaskDied
from crossbyte.evaluation.loading import Source
from crossbyte.evaluation.measuring import fitted, measured
from crossbyte.evaluation.processes import Failure, each_here, each_in_processes
from crossbyte.evaluation.protocols import FITTED_ON, Trial, make_trial
from crossbyte.evaluation.results import Result, read_result, runs_folder, write_result
from crossbyte.evaluation.runs import Run
from crossbyte.executors.choosing import on_cluster
from crossbyte.progress import Progress, ProgressCallback, silent

__all__ = ["Outcome", "do_runs"]

# About how long systems take beside each other per bit; only the order of work depends on it.
_WEIGHTS = {"cmcq-auto": 10.0, "mlbe": 2.0, "cmcq": 2.0, "cq": 2.0, "lssh": 1.5, "cmcq-cca": 1.0, "seph": 1.0}
_WEIGHTS |= {"sm2h": 1.0, "imh": 1.0, "mvsh": 0.5, "crh": 0.3, "mmnn": 0.2, "stmh": 0.1, "scm": 0.05}
_WEIGHTS |= {"ccq": 0.2, "cca-lsq": 0.2, "cmssh": 0.1, "qch": 0.05}


class FailedRun(NamedTuple):
    """A run that came to nothing, and why."""

    run: Run
    failure: Failure


@dataclass
class Outcome:
    """What became of the runs.

    Attributes
    ----------
    results : list of Result
        Of all runs that are done, in the order in which they were asked for.
    failed : list of FailedRun
    n_found : int
        Results that were there already.
    notes : list of str
        Damaged results that were made again.
    """

    results: list[Result] = field(default_factory=list)
    failed: list[FailedRun] = field(default_factory=list)
    n_found: int = 0
    notes: list[str] = field(default_factory=list)


def do_runs(
    runs: Sequence[Run],
    collection: Collection,
    directory: Path,
    *,
    source: Source | None = None,
    n_processes: int = 1,
    cluster: str | None = None,
    again: bool = False,
    stage: str = "runs",
    callback: ProgressCallback = silent,
) -> Outcome:
    """Do the runs that have no result yet; a run that fails does not stop the others.

    Parameters
    ----------
    runs : sequence of Run
    collection : Collection
    directory : Path
        Results are in its folder ``runs``.
    source : Source, optional
        Where other processes read the collection; without it, everything is done in this one.
    n_processes : int
        Runs at a time; -1 for as many as a cluster has room for.
    cluster : str, optional
        ``"local"`` to start Ray on this machine, or the address of a Ray cluster, whose tasks do the runs;
        the results are written here.
    again : bool
        Also do runs that have a result.
    stage : str
        What the work is called in its progress.
    callback : callable
        Called with a :class:`crossbyte.progress.Progress` after every run.

    Raises
    ------
    FitInterrupted
        Ctrl-C; the results so far are kept.
    InvalidInput
        Results cannot be written there; nothing was run.
    ClusterError, MissingExtra
        There is no such cluster, or it was lost; the results so far are kept.
    """
    _check_writable(runs_folder(directory))
    outcome = Outcome()
    known = {} if again else dict(_known(runs, directory, outcome))
    outcome.n_found = len(known)
    jobs = _jobs([run for run in runs if run.digest not in known], collection)
    done, total, n_found = len(known), len(runs), len(known)
    if jobs:
        callback(Progress(stage, "", 0, total - n_found))
    try:
        for job, failure in _done(jobs, collection, directory, source, n_processes, cluster):
            done += len(job)
            outcome.failed += [FailedRun(run, failure) for run in job if failure is not None]
            # What was there took no time: counted, it would make the time left too short.
            callback(Progress(stage, str(job[0]), done - n_found, total - n_found))
    except KeyboardInterrupt:
        if not again:  # a process may have written one that it could no longer tell of
            done = sum(_path(directory, run).exists() for run in runs)
        raise FitInterrupted(_interrupted(done, total, directory)) from None
    failed = {each.run.digest for each in outcome.failed}
    outcome.results = [
        known.get(run.digest) or read_result(_path(directory, run))
        for run in runs
        if run.digest not in failed
    ]
    return outcome


def _check_writable(folder: Path) -> None:
    """Make the folder of the results, and refuse one that takes no files: runs may take hours."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(
            f"{folder}: expected a folder to write results into, got {error.strerror or error}; nothing was "
            "run; name another folder"
        ) from error


def _interrupted(done: int, total: int, directory: Path) -> str:
    if not done:
        what = f"interrupted before the first of {plural(total, 'run')} was done"
        return f"{what}; run the command again when you like"
    return (
        f"interrupted after {done} of {total} runs, whose results are in {directory}; "
        "run the same command again to go on from there"
    )


def _path(directory: Path, run: Run) -> Path:
    return runs_folder(directory) / run.file_name


def _known(runs: Iterable[Run], directory: Path, outcome: Outcome) -> Iterator[tuple[str, Result]]:
    """Results that are there, whole and of exactly these runs."""
    for run in runs:
        path = _path(directory, run)
        if not path.exists():
            continue
        try:
            result = read_result(path)
        except InvalidInput:
            outcome.notes.append(f"{path.name} was damaged and is made again")
            continue
        if result.run.digest == run.digest:
            yield run.digest, result


# Jobs: runs that share a fit

Job = tuple[Run, ...]


def _jobs(runs: Iterable[Run], collection: Collection) -> list[Job]:
    """Runs together that one fit serves, those that take longest first."""
    shared: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        shared.setdefault((run.fit_key, _fitted_on(run, collection)), []).append(run)
    return sorted(map(tuple, shared.values()), key=_cost, reverse=True)


def _fitted_on(run: Run, collection: Collection) -> str:
    labels = collection.train.labels
    if run.protocol == "A" and labels is not None and labels.any(axis=1).all():
        return FITTED_ON["B"]
    return FITTED_ON[run.protocol]


def _cost(job: Job) -> float:
    return _WEIGHTS.get(job[0].method, 0.01) * job[0].bits


class Bench:
    """A collection with its trials at hand, in one process."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._trials: dict[tuple[str, str], Trial] = {}

    def results(self, job: Job) -> Iterator[Result]:
        """Fit once, and measure every run of the job."""
        method, seconds = fitted(job[0], self._trial(job[0]))
        for run in job:
            yield measured(run, self._collection, self._trial(run), method, seconds)

    def write(self, job: Job, directory: Path) -> None:
        """Write every result as soon as it is there."""
        for result in self.results(job):
            write_result(directory, result)

    def _trial(self, run: Run) -> Trial:
        variant = run.variant if run.protocol == "D" else ""
        key = run.protocol, variant
        if key not in self._trials:
            self._trials[key] = make_trial(run.protocol, self._collection, variant)
        return self._trials[key]


class _Task(NamedTuple):
    """A job, and what a process needs to know for it."""

    job: Job
    source: Source
    directory: Path


@lru_cache(maxsize=1)
def _bench(source: Source) -> Bench:
    """Read the collection once per process."""
    return Bench(source.read())


def _do(task: _Task) -> None:
    _bench(task.source).write(task.job, task.directory)


def _done(
    jobs: Sequence[Job],
    collection: Collection,
    directory: Path,
    source: Source | None,
    n_processes: int,
    cluster: str | None,
) -> Iterator[tuple[Job, Failure | None]]:
    if cluster is not None and jobs:
        yield from _done_there(jobs, collection, directory, n_processes, cluster)
        return
    n_processes = min(n_processes, len(jobs))
    if n_processes <= 1 or source is None:
        bench = Bench(collection)
        yield from each_here(lambda job: bench.write(job, directory), jobs)
        return
    tasks = [_Task(job, source, directory) for job in jobs]
    for task, failure in each_in_processes(_do, tasks, n_processes):
        yield task.job, failure


def _done_there(
    jobs: Sequence[Job], collection: Collection, directory: Path, n_tasks: int, cluster: str
) -> Iterator[tuple[Job, Failure | None]]:
    """Do jobs as tasks of a cluster, whose machines know neither the data nor the folder of the results."""

    def results(job: Job) -> list[Result] | Failure:
        try:
            return list(Bench(collection).results(job))
        except Exception as error:
            return Failure.of(error)

    with on_cluster(cluster, n_tasks) as workers:
        for job, get in workers.as_they_end(results, jobs):
            yield job, _written(get, directory)


def _written(get: Callable[[], list[Result] | Failure], directory: Path) -> Failure | None:
    """Write what a task found, or say what went wrong with it."""
    try:
        found = get()
    except TaskDied as error:  # alone: the cluster is still there for the others
        return Failure.of(error)
    if isinstance(found, Failure):
        return found
    for result in found:
        write_result(directory, result)
    return None
