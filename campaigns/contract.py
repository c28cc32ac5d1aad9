"""Hold the service to its own OpenAPI: ``python -m campaigns contract --requests 50000``.

Our generator knows what is fine and what is odd, and asks the application; schemathesis knows the OpenAPI
document alone, and sends what it makes of it to a server, with all its checks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

from campaigns import ROOT
from campaigns.runner import Outcome, Unit, add_common_options, run_units
from support.paths import with_tests
from support.service_samples import TOKEN, sample, serving

_PER_KIND = 60  # requests of each kind for every route, of one unit; fewer where there are not so many
_PER_UNIT = 1500  # at least so many come of that
_CODE = "from service.test_contract import run_campaign; print(run_campaign({count}, {seed}))"


class Argued(NamedTuple):
    """A finding of schemathesis that is right as it is: by check, our error code, a part of the message."""

    check: str
    codes: tuple[str, ...]
    reason: str
    said: str = ""


_ACCEPTANCE = "positive_data_acceptance"
ARGUED = (
    Argued(
        _ACCEPTANCE,
        ("unknown_field", "bad_filter", "filter_too_many_terms"),
        "a filter has a grammar and names fields of the documents; a schema says neither",
    ),
    Argued(
        _ACCEPTANCE,
        ("invalid_input", "no_encoder", "not_calibrated"),
        "how many numbers a vector has, and what may be asked, follows from the model that is served",
    ),
    Argued(
        _ACCEPTANCE,
        ("invalid_request",),
        "an id has at most so many bytes, of which a schema knows nothing, and 7.0 is none",
        said="at most 1024 bytes",
    ),
    Argued(
        _ACCEPTANCE,
        ("invalid_request",),
        "a schema takes 7.0 for an integer, we do not",
        said="should be a valid integer",
    ),
    Argued(
        _ACCEPTANCE,
        ("invalid_request",),
        "a schema takes 7.0 for an integer, we do not",
        said="expected a number of cells from 1",
    ),
    Argued(
        _ACCEPTANCE,
        ("bad_json",),
        "the payload in a form is JSON, for a schema it is text",
    ),
    Argued(
        _ACCEPTANCE,
        ("invalid_request",),
        "the payload in a form is JSON, for a schema it is text",
        said="payload: ",
    ),
    Argued(_ACCEPTANCE, ("bad_picture",), "no schema says what a picture is"),
    Argued(
        _ACCEPTANCE, ("key_reused",), "whether a key came before with another request, the server alone knows"
    ),
    Argued(_ACCEPTANCE, ("url_too_long",), "the parts of a URL are within their limits, all of it is not"),
    Argued(
        "negative_data_rejection",
        ("url_too_long",),
        "it is refused, with the status 414, before its parts are looked at",
    ),
    Argued(
        "unsupported_method",
        ("unexpected_body",),
        "a body is refused where none is declared before anybody asks for the method; TRACE must have none",
    ),
)


def main() -> int:
    """Send as many generated requests as were asked for, and those of schemathesis."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000, help="of our own generator, at least")
    parser.add_argument(
        "--examples", type=int, default=200, help="of schemathesis, for each operation, at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    add_common_options(parser)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed - -given.requests // _PER_UNIT)
    others = Unit(
        f"schemathesis, {given.examples} examples, seed {given.seed}",
        partial(send_others, given.examples, given.seed),
    )
    return run_units(
        "contract", [others, *(Unit(f"seed {seed}", partial(send, seed)) for seed in seeds)], given
    )


def send(seed: int) -> Outcome:
    """Send the requests of one seed, in a process of their own."""
    code = _CODE.format(count=_PER_KIND, seed=seed)
    done = subprocess.run(
        [sys.executable, "-c", code], env=with_tests(), cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode != 0:
        return Outcome(0, [f"seed {seed}: {done.stderr[-3000:]}"])
    n_sent = int(done.stdout.split()[-1])
    return Outcome(n_sent, [], {"of our generator": n_sent})


def send_others(examples: int, seed: int) -> Outcome:
    """Send what schemathesis makes of the OpenAPI document, and let it check the answers."""
    with tempfile.TemporaryDirectory(prefix="crossbyte-campaign-") as name:
        folder = Path(name)
        report = folder / "report.json"
        with serving(sample(folder), token=TOKEN) as (url, _):
            command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
            command += ["--header", f"Authorization: Bearer {TOKEN}", "--checks", "all"]
            command += ["--exclude-checks", ",".join(sorted({each.check for each in ARGUED}))]
            command += ["--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure"]
            command += ["--report", "json", "--report-json-path", str(report)]
            environment = os.environ | {
                "SCHEMATHESIS_HOOKS": "campaigns.schemathesis_checks",
                "PYTHONPATH": str(ROOT),
            }
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        if not report.exists():
            return Outcome(
                0, [f"schemathesis: exit code {done.returncode}: {done.stdout[-3000:]}{done.stderr}"]
            )
        found = json.loads(report.read_text())
    n_sent = found["test_cases"]["generated"]
    if done.returncode == 0 and not found["failures"] and not found["errors"]:
        return Outcome(n_sent, [], {"of schemathesis": n_sent})
    return Outcome(n_sent, [f"schemathesis: {done.stdout[-20_000:]}"])


if __name__ == "__main__":
    raise SystemExit(main())
