"""Ctrl-C: a typed error, and the model as it was before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, CrossbyteError, FitInterrupted, NotFitted
from crossbyte.data.synthetic import make_pairs
from crossbyte.progress import Progress

PAIRS = make_pairs(80, 8, 12, random_state=0)
SMALL = {"n_bits": 8, "n_components": 4, "n_atoms": 8, "max_iter": 2, "random_state": 0}


class Interrupt:
    """A callback that raises what Ctrl-C raises, at the step with this number."""

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        self.at, self.error, self.steps = at, error or KeyboardInterrupt(), 0

    def __call__(self, progress: Progress) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise self.error


def steps_of(mapping: str) -> int:
    counter = Interrupt(at=-1)
    CMCQ(**SMALL, mapping=mapping, callback=counter).fit(PAIRS.images, PAIRS.texts)
    return counter.steps


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("mapping", ["sparse", "cca", "contrastive", "auto"])
def test_an_interrupted_fit_leaves_an_unfitted_model_unfitted(mapping: str, n_jobs: int) -> None:
    last = steps_of(mapping)
    for at in sorted({1, 2, 3, last // 2, last}):
        model = CMCQ(**SMALL, mapping=mapping, n_jobs=n_jobs, callback=Interrupt(at))
        with pytest.raises(FitInterrupted, match="as it was before") as caught:
            model.fit(PAIRS.images, PAIRS.texts)
        assert isinstance(caught.value, KeyboardInterrupt)
        assert isinstance(caught.value, CrossbyteError)
        assert [name for name in vars(model) if name.endswith("_") or name.startswith("_")] == []
        with pytest.raises(NotFitted):
            model.encode_images(PAIRS.images)


@pytest.mark.parametrize("mapping", ["sparse", "cca", "auto"])
def test_an_interrupted_fit_leaves_a_fitted_model_as_it_was(mapping: str) -> None:
    last = steps_of(mapping)
    model = CMCQ(**SMALL, mapping=mapping).fit(PAIRS.images, PAIRS.texts)
    before, codes = model.to_bytes(), model.encode_texts(PAIRS.texts)
    for at in (1, last // 2, last):
        model.callback = Interrupt(at)
        with pytest.raises(FitInterrupted):
            model.fit(PAIRS.images[::-1, :5], PAIRS.texts[::-1])
        assert model.to_bytes() == before
        assert model.n_features_in_ == 8
        np.testing.assert_array_equal(model.encode_texts(PAIRS.texts), codes)


def test_the_message_says_how_far_it_was() -> None:
    with pytest.raises(FitInterrupted, match="after prepare: features"):
        CMCQ(**SMALL, callback=Interrupt(1)).fit(PAIRS.images, PAIRS.texts)
    with pytest.raises(FitInterrupted, match="after codebooks: initialised"):
        CMCQ(**SMALL, callback=Interrupt(3)).fit(PAIRS.images, PAIRS.texts)
    with pytest.raises(FitInterrupted, match="after space: round 1"):
        CMCQ.paper(**SMALL, callback=Interrupt(3)).fit(PAIRS.images, PAIRS.texts)


def test_an_interrupted_model_can_be_fitted_again() -> None:
    model = CMCQ(**SMALL, callback=Interrupt(4))
    with pytest.raises(FitInterrupted):
        model.fit(PAIRS.images, PAIRS.texts)
    model.fit(PAIRS.images, PAIRS.texts)  # the callback has fired
    assert model.to_bytes() == CMCQ(**SMALL).fit(PAIRS.images, PAIRS.texts).to_bytes()


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(3), MemoryError()])
def test_other_errors_of_a_callback_pass_through(error: BaseException) -> None:
    model = CMCQ(**SMALL, callback=Interrupt(3, error))
    with pytest.raises(type(error)) as caught:
        model.fit(PAIRS.images, PAIRS.texts)
    assert caught.value is error
    with pytest.raises(NotFitted):
        model.encode_images(PAIRS.images)


LONG_FIT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also as a job in the background
from crossbyte import CMCQ, FitInterrupted, NotFitted
from crossbyte.data.synthetic import make_pairs

# An interrupt waits for the blocks at work, so with NumPy kernels the rows must be few and narrow.
pairs = make_pairs(4000, 32, 100, random_state=0)
started = False

def tell(progress):
    global started
    if not started and progress.stage == sys.argv[1]:
        started = True
        print("started", flush=True)

model = CMCQ(32, mapping=sys.argv[2], n_atoms=64, max_iter=100000, tol=0.0, random_state=0, n_jobs=2,
             callback=tell)
try:
    model.fit(pairs.images, pairs.texts)
except FitInterrupted as error:
    try:
        model.encode_images(pairs.images)
    except NotFitted:
        print("interrupted:", error, flush=True)
"""


@pytest.mark.parametrize(
    ("stage", "mapping"), [("prepare", "sparse"), ("space", "sparse"), ("space", "cca"), ("alternate", "cca")]
)
def test_a_real_interrupt_ends_a_long_fit_soon(stage: str, mapping: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG_FIT, stage, mapping],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | interrupt_environment(),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            time.sleep(0.1)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert time.monotonic() - sent < 5
    assert output.startswith("interrupted: fit was interrupted"), errors
    assert process.returncode == 0


def interrupt_environment() -> dict[str, Any]:
    """The subprocess must find the same crossbyte as the test."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
