"""Run systems on data sets, in processes, and measure them; every finished run is a file.

Processes are spawned, not forked (BLAS and our own threads do not survive a fork), each with one thread for
linear algebra, and leave Ctrl-C to their parent, who ends them. One that dies takes only its task with it.
What a task returns must be small.
"""

from __future__ import annotations

import builtins
import math
import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing import connection
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import crossbyte
from crossbyte import errors
from crossbyte._format import plural
from crossbyte._json import plain_json
from crossbyte.compute.executor import make_ray_executor, row_blocks
from crossbyte.errors import FitInterrupted, InvalidInput, TaskDied
from crossbyte.lab.datasets.collection import Collection
from crossbyte.lab.datasets.loader import DataSource
from crossbyte.lab.methods.labels import share_a_label
from crossbyte.lab.methods.method import Method
from crossbyte.lab.protocols import FITTED_ON, Database, Task, Trial, make_trial
from crossbyte.lab.results import Result, Run, read_result, runs_folder, write_result
from crossbyte.lab.systems import make_system
from crossbyte.metrics.scorer import Scorer
from crossbyte.progress import Progress, ProgressCallback, ignore_progress

Work = TypeVar("Work")

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_SECONDS_TO_END = 5.0

QUERY_DEPTHS = (1, 5, 10)
"""Depths of recall that are kept for every query, where there are true partners."""

_BLOCK_ENTRIES = 2**24  # distances at a time: 64 MB
_MOST_QUERIES = 1_024

# About how long systems take beside each other per bit; only the order of work depends on it.
_WEIGHTS = {"cmcq-auto": 10.0, "mlbe": 2.0, "cmcq": 2.0, "cq": 2.0, "lssh": 1.5, "cmcq-cca": 1.0, "seph": 1.0}
_WEIGHTS |= {"sm2h": 1.0, "imh": 1.0, "mvsh": 0.5, "crh": 0.3, "mmnn": 0.2, "stmh": 0.1, "scm": 0.05}
_WEIGHTS |= {"cmcq-default": 2.0, "ccq": 0.2, "cca-lsq": 0.2, "cmssh": 0.1, "qch": 0.05}


class FailedRun(NamedTuple):
    """A run that came to nothing, and why."""

    run: Run
    failure: TaskFailure


@dataclass
class Outcome:
    """What became of the runs.

    Attributes
    ----------
    results : list of Result
        Results of all runs that are done, in the order in which they were asked for.
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


def run_all(
    runs: Sequence[Run],
    collection: Collection,
    directory: Path,
    *,
    source: DataSource | None = None,
    n_processes: int = 1,
    cluster: str | None = None,
    again: bool = False,
    stage: str = "runs",
    callback: ProgressCallback = ignore_progress,
) -> Outcome:
    """Do the runs that have no result yet; a run that fails does not stop the others.

    Parameters
    ----------
    runs : sequence of Run
    collection : Collection
    directory : Path
        Results are in its folder ``runs``.
    source : DataSource, optional
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
    known = {} if again else dict(_read_known_results(runs, directory, outcome))
    outcome.n_found = len(known)
    jobs = _group_jobs([run for run in runs if run.digest not in known], collection)
    done, total, n_found = len(known), len(runs), len(known)
    if jobs:
        callback(Progress(stage, "", 0, total - n_found))
    try:
        for job, failure in _do_jobs(jobs, collection, directory, source, n_processes, cluster):
            done += len(job)
            outcome.failed += [FailedRun(run, failure) for run in job if failure is not None]
            # What was there took no time: counted, it would make the time left too short.
            callback(Progress(stage, str(job[0]), done - n_found, total - n_found))
    except KeyboardInterrupt:
        if not again:  # a process may have written one that it could no longer tell of
            done = sum(_result_path(directory, run).exists() for run in runs)
        raise FitInterrupted(_describe_interruption(done, total, directory)) from None
    failed = {each.run.digest for each in outcome.failed}
    outcome.results = [
        known.get(run.digest) or read_result(_result_path(directory, run))
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


def _describe_interruption(done: int, total: int, directory: Path) -> str:
    if not done:
        what = f"interrupted before the first of {plural(total, 'run')} was done"
        return f"{what}; run the command again when you like"
    return (
        f"interrupted after {done} of {total} runs, whose results are in {directory}; "
        "run the same command again to go on from there"
    )


def _result_path(directory: Path, run: Run) -> Path:
    return runs_folder(directory) / run.file_name


def _read_known_results(
    runs: Iterable[Run], directory: Path, outcome: Outcome
) -> Iterator[tuple[str, Result]]:
    """Read the results that are there, whole and of exactly these runs."""
    for run in runs:
        path = _result_path(directory, run)
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


def _group_jobs(runs: Iterable[Run], collection: Collection) -> list[Job]:
    """Group the runs that one fit serves, those that take longest first."""
    shared: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        shared.setdefault((run.fit_key, _training_part(run, collection)), []).append(run)
    return sorted(map(tuple, shared.values()), key=_estimate_cost, reverse=True)


def _training_part(run: Run, collection: Collection) -> str:
    labels = collection.train.labels
    if run.protocol == "A" and labels is not None and labels.any(axis=1).all():
        return FITTED_ON["B"]
    return FITTED_ON[run.protocol]


def _estimate_cost(job: Job) -> float:
    return _WEIGHTS.get(job[0].method, 0.01) * job[0].bits


class TrialBench:
    """A collection with its trials at hand, in one process."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._trials: dict[tuple[str, str], Trial] = {}

    def results(self, job: Job) -> Iterator[Result]:
        """Fit once, and measure every run of the job."""
        method, seconds = fit_system(job[0], self._trial(job[0]))
        for run in job:
            yield measure_run(run, self._collection, self._trial(run), method, seconds)

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


class _JobTask(NamedTuple):
    """A job, and what a process needs to know for it."""

    job: Job
    source: DataSource
    directory: Path


@lru_cache(maxsize=1)
def _open_bench(source: DataSource) -> TrialBench:
    """Read the collection once per process."""
    return TrialBench(source.read())


def _do_task(task: _JobTask) -> None:
    _open_bench(task.source).write(task.job, task.directory)


def _do_jobs(
    jobs: Sequence[Job],
    collection: Collection,
    directory: Path,
    source: DataSource | None,
    n_processes: int,
    cluster: str | None,
) -> Iterator[tuple[Job, TaskFailure | None]]:
    if cluster is not None and jobs:
        yield from _do_jobs_on_cluster(jobs, collection, directory, n_processes, cluster)
        return
    n_processes = min(n_processes, len(jobs))
    if n_processes <= 1 or source is None:
        bench = TrialBench(collection)
        yield from run_here(lambda job: bench.write(job, directory), jobs)
        return
    tasks = [_JobTask(job, source, directory) for job in jobs]
    for task, failure in run_in_processes(_do_task, tasks, n_processes):
        yield task.job, failure


def _do_jobs_on_cluster(
    jobs: Sequence[Job], collection: Collection, directory: Path, n_tasks: int, cluster: str
) -> Iterator[tuple[Job, TaskFailure | None]]:
    """Do jobs as tasks of a cluster, whose machines know neither the data nor the folder of the results."""

    def results(job: Job) -> list[Result] | TaskFailure:
        try:
            return list(TrialBench(collection).results(job))
        except Exception as error:
            return TaskFailure.of(error)

    with make_ray_executor(cluster, n_tasks) as workers:
        for job, get in workers.map_unordered(results, jobs):
            yield job, _write_outcome(get, directory)


def _write_outcome(get: Callable[[], list[Result] | TaskFailure], directory: Path) -> TaskFailure | None:
    """Write what a task found, or say what went wrong with it."""
    try:
        found = get()
    except TaskDied as error:  # alone: the cluster is still there for the others
        return TaskFailure.of(error)
    if isinstance(found, TaskFailure):
        return found
    for result in found:
        write_result(directory, result)
    return None


# One run: learn, code, search, score


class CpuClock:
    """Processor seconds by what they were spent on.

    Runs have one thread each, so that these are what a run takes on a core of its own, whatever else the
    machine does beside it.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("fit", "code", "search"), 0.0)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Add the time of the block."""
        began = time.process_time()
        yield
        self.seconds[what] += time.process_time() - began


def fit_system(run: Run, trial: Trial) -> tuple[Method, float]:
    """Let the system of a run learn; return it with the seconds it took."""
    method = make_system(run)
    clock = CpuClock()
    labels = trial.train.labels if run.similarity == "labels" else None
    with clock("fit"):
        method.fit(trial.train.images, trial.train.texts, labels)
    return method, clock.seconds["fit"]


def measure_run(run: Run, collection: Collection, trial: Trial, method: Method, fit_seconds: float) -> Result:
    """Code the database, ask every query that the system can answer, and score the answers."""
    clock = CpuClock()
    clock.seconds["fit"] = fit_seconds
    tasks = trial.tasks_of(method)
    scorers = {task.name: _score_task(task, trial.database, method, clock) for task in tasks}
    return Result(
        run=run,
        about=_to_json_values(asdict(method.about)),
        data=_describe_data(run, collection, trial),
        versions=_list_versions(),
        seconds={name: round(value, 4) for name, value in clock.seconds.items()},
        scores={name: _to_json_values(scorer.scores()) for name, scorer in scorers.items()},
        chance={name: _to_json_values(scorer.chance()) for name, scorer in scorers.items()},
        details=_to_json_values(method.details) | {"parameters": _to_json_values(method.parameters)},
        per_query={name: _per_query_scores(scorer) for name, scorer in scorers.items()},
        finished=round(time.time(), 3),
    )


def _score_task(task: Task, database: Database, method: Method, clock: CpuClock) -> Scorer:
    with clock("code"):
        items = database.items(method, task.searched)
        queries = method.queries(task.asks, task.queries)
    n_queries, n_items = task.queries.shape[0], len(database.part)
    scorer = Scorer(n_items, labels_relevant=task.labels is not None, partners=task.partners is not None)
    for rows in row_blocks(n_queries, max(1, min(_MOST_QUERIES, _BLOCK_ENTRIES // n_items))):
        with clock("search"):
            distances = method.distances(task.searched, queries[rows], items)
        partners = None if task.partners is None else task.partners[rows]
        scorer.add(distances, _mark_relevant(task, database, rows), partners)
    return scorer


def _mark_relevant(task: Task, database: Database, rows: slice) -> NDArray[np.bool_] | None:
    """Whether query and item share a label: (n, N)."""
    if task.labels is None or database.labels is None:
        return None
    return share_a_label(task.labels[rows], database.labels)


def _per_query_scores(scorer: Scorer) -> dict[str, Any]:
    """What tests and intervals over queries need, with six digits: longer files would say no more."""
    names = [f"recall@{depth}" for depth in QUERY_DEPTHS] if scorer.partners else []
    found = scorer.per_query(*names)
    found["rank"] = found.pop("recall_rank")
    return {name: np.round(values, 6).tolist() for name, values in found.items() if values is not None}


def _describe_data(run: Run, collection: Collection, trial: Trial) -> dict[str, Any]:
    train = trial.train
    return {
        "name": collection.name,
        "about": collection.about,
        "digest": run.data_digest,
        "n_train": len(train),
        "n_items": len(trial.database.part),
        "n_queries": trial.tasks[0].queries.shape[0],
        "image_dim": train.images.shape[1],
        "text_dim": train.texts.shape[1],
        **trial.notes,
    }


def _list_versions() -> dict[str, str]:
    faiss = sys.modules.get("faiss")  # only where a system has used it
    found = {
        "crossbyte": crossbyte.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return found | ({} if faiss is None else {"faiss": str(faiss.__version__)})


def _to_json_values(value: Any) -> Any:
    """Make JSON of mappings of arrays and numbers; what is not finite becomes null."""
    return plain_json(_finite_or_none(value), "a result")


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite_or_none(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Tasks, here or in several processes


@dataclass(frozen=True)
class TaskFailure:
    """An error of a task, in words that can go from one process to another.

    Attributes
    ----------
    kind : str
        Name of the class of the error.
    message : str
    trace : str
        Where it happened, for a report of a fault.
    """

    kind: str
    message: str
    trace: str = ""

    @classmethod
    def of(cls, error: Exception) -> TaskFailure:
        """Describe an error that was caught."""
        return cls(type(error).__name__, str(error), "".join(traceback.format_exception(error)))

    @property
    def error(self) -> Exception:
        """The error again, of its class where that is ours or Python's own."""
        found = getattr(errors, self.kind, None) or getattr(builtins, self.kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            with suppress(TypeError):  # a class that wants more than a message
                return found(self.message)
        return RuntimeError(f"{self.kind}: {self.message}")


def run_here(
    function: Callable[[Work], object], tasks: Iterable[Work]
) -> Iterator[tuple[Work, TaskFailure | None]]:
    """Do tasks one after another in this process; yield each with what went wrong, or None."""
    from threadpoolctl import threadpool_limits

    for task in tasks:
        with threadpool_limits(1):  # as in the processes: results must not depend on where they are made
            failure = _try_task(function, task)
        yield task, failure


def run_in_processes(
    function: Callable[[Work], object], tasks: Iterable[Work], n_processes: int
) -> Iterator[tuple[Work, TaskFailure | None]]:
    """Do tasks in several processes, in about their order; yield each, as it ends, with what went wrong.

    Parameters
    ----------
    function : callable
        A function of one argument, found by its name in another process, so not defined within a function.
    tasks : iterable
    n_processes : int
    """
    waiting = deque(tasks)
    crew: list[_Worker[Work]] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < n_processes:
                crew.append(_Worker(function, waiting.popleft()))
            ready = connection.wait([worker.answers for worker in crew])
            for worker in [worker for worker in crew if worker.answers in ready]:
                yield worker.task, worker.outcome()
                if not (worker.alive and waiting and worker.take(waiting[0])):
                    worker.end()
                    crew.remove(worker)
                else:
                    waiting.popleft()
    finally:
        for worker in crew:
            worker.end()


class _Worker(Generic[Work]):
    """One process and the task it has."""

    def __init__(self, function: Callable[[Work], object], task: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe()
        self._process = context.Process(target=_serve_tasks, args=(theirs, function), daemon=True)
        with _set_environment(dict.fromkeys(_ONE_THREAD, "1")):  # read once, when the libraries are loaded
            self._process.start()
        theirs.close()
        self.alive = True
        self.take(task)

    def take(self, task: Work) -> bool:
        """Send a task; False if nobody is there to take it."""
        self.task = task
        try:
            self.answers.send(task)
        except OSError:
            self.alive = False
        return self.alive

    def outcome(self) -> TaskFailure | None:
        """What became of the task."""
        try:
            found: TaskFailure | None = self.answers.recv()
            return found
        except (EOFError, OSError):
            self.alive = False
            self._process.join(_SECONDS_TO_END)
            return _failure_of_dead_process(self._process.exitcode)

    def end(self) -> None:
        """End the process, whatever it does: results are files, which are whole or not there."""
        self._process.terminate()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()  # one that is deep in a library does not hear the first
        self._process.join()
        self.answers.close()


def _serve_tasks(tasks: connection.Connection[Any, Any], function: Callable[[Any], object]) -> None:
    """Do what comes until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with suppress(EOFError, OSError):
        while True:
            tasks.send(_try_task(function, tasks.recv()))


def _exit_on_signal(*_: object) -> None:
    """End as an exception does, so that a file which is being written is not left behind."""
    raise SystemExit(128 + signal.SIGTERM)


def _try_task(function: Callable[[Work], object], task: Work) -> TaskFailure | None:
    try:
        function(task)
    except Exception as error:
        return TaskFailure.of(error)
    return None


def _failure_of_dead_process(code: int | None) -> TaskFailure:
    if code is not None and code == -getattr(signal, "SIGKILL", 9):
        return TaskFailure("MemoryError", "the process was killed, most likely because memory ran out")
    return TaskFailure("RuntimeError", f"the process ended with code {code} before it was done")


@contextmanager
def _set_environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
