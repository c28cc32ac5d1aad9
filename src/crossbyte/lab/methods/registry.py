"""Find the compared systems by name.

Names, groups and homes are known without importing any system, so that a command line can offer them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.lab.methods.method import About, Method

# Key -> a module and the class that it defines; in the order of tables.
_HOMES = {
    "random": ("crossbyte.lab.methods.hashing", "RandomCodes"),
    "cmssh": ("crossbyte.lab.methods.cmssh", "CMSSH"),
    "scm": ("crossbyte.lab.methods.scm", "SCM"),
    "crh": ("crossbyte.lab.methods.crh", "CRH"),
    "mmnn": ("crossbyte.lab.methods.mmnn", "MMNN"),
    "sm2h": ("crossbyte.lab.methods.sm2h", "SM2H"),
    "mlbe": ("crossbyte.lab.methods.mlbe", "MLBE"),
    "imh": ("crossbyte.lab.methods.imh", "IMH"),
    "cvh": ("crossbyte.lab.methods.cvh", "CVH"),
    "mvsh": ("crossbyte.lab.methods.mvsh", "MVSH"),
    "seph": ("crossbyte.lab.methods.seph", "SePH"),
    "lssh": ("crossbyte.lab.methods.lssh", "LSSH"),
    "cmfh": ("crossbyte.lab.methods.cmfh", "CMFH"),
    "stmh": ("crossbyte.lab.methods.stmh", "STMH"),
    "qch": ("crossbyte.lab.methods.qch", "QCH"),
    "ccq": ("crossbyte.lab.methods.ccq", "CCQ"),
    "cq": ("crossbyte.lab.methods.cmcq", "CQ"),
    "cca": ("crossbyte.lab.methods.cca", "CCA"),
    "cca-itq": ("crossbyte.lab.methods.cca", "CCAITQ"),
    "cca-pq": ("crossbyte.lab.methods.cca_quantized", "CCAPQ"),
    "cca-opq": ("crossbyte.lab.methods.cca_quantized", "CCAOPQ"),
    "cca-rq": ("crossbyte.lab.methods.cca_quantized", "CCARQ"),
    "cca-lsq": ("crossbyte.lab.methods.cca_quantized", "CCALSQ"),
    "cca-middle-rq": ("crossbyte.lab.methods.cca_middle", "CCAMiddleRQ"),
    "keywords": ("crossbyte.lab.methods.keywords", "Keywords"),
    "cmcq": ("crossbyte.lab.methods.cmcq", "PaperCMCQ"),
    "cmcq-cca": ("crossbyte.lab.methods.cmcq", "CanonicalCMCQ"),
    "cmcq-kernel": ("crossbyte.lab.methods.cmcq", "KernelCMCQ"),
    "cmcq-default": ("crossbyte.lab.methods.cmcq", "DefaultCMCQ"),
    "cmcq-auto": ("crossbyte.lab.methods.cmcq", "AutoCMCQ"),
}

GROUPS: Mapping[str, tuple[str, ...]] = {
    "table1": (
        *("cmssh", "scm", "crh", "mmnn", "sm2h", "mlbe", "imh", "cvh"),
        *("mvsh", "seph", "lssh", "cmfh", "stmh"),
        *("qch", "ccq", "cmcq"),
    ),
    "table2": ("cmssh", "cvh", "mlbe", "qch", "lssh", "cmfh", "ccq", "cmcq"),
    "table3": ("seph", "cmcq"),
    "quantizers": ("cca-pq", "cca-opq", "cca-rq", "cca-lsq"),
    "all": tuple(_HOMES),
}
"""Names for several systems: the rows of the paper's Tables 1, 2 and 3, standard quantizers, everything."""


class _Methods(Mapping[str, "type[Method]"]):
    """Classes by key, each imported when it is asked for."""

    def __getitem__(self, key: str) -> type[Method]:
        module, name = _HOMES[key]
        found: type[Method] = getattr(import_module(module), name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


METHODS: Mapping[str, type[Method]] = _Methods()
"""Every system's class by its key; looking one up imports its module and no other."""


def list_keys() -> tuple[str, ...]:
    """List the keys of all systems, in the order of tables; nothing is imported."""
    return tuple(_HOMES)


def resolve_keys(names: Iterable[str]) -> tuple[str, ...]:
    """Resolve keys and names of groups to keys, each once, in the order of their first mention.

    Raises
    ------
    InvalidInput
        For a name that is neither.
    """
    return tuple(dict.fromkeys(key for name in names for key in GROUPS.get(name) or (_check_key(name),)))


def about_method(key: str) -> About:
    """Look up what the system with this key declares of itself."""
    return METHODS[_check_key(key)].about


def make_method(
    key: str,
    n_bits: int,
    *,
    seed: int = 0,
    similarity: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    n_jobs: int | None = 1,
) -> Method:
    """Make a system that has learned nothing yet.

    Parameters
    ----------
    key : str
        One of :func:`list_keys`.
    n_bits : int
        Length of a code.
    seed : int
        The same seed, the same codes.
    similarity : str or None
        What it is taught with; None for its own default.
    parameters : mapping, optional
        Fields of its class to change from their defaults.
    n_jobs : int or None
        Threads; the result does not depend on it.

    Raises
    ------
    InvalidInput
        For an unknown key or parameter, or a length or similarity that the system cannot do.
    MissingExtra
        If it needs a library that is not installed.
    """
    method = METHODS[_check_key(key)]
    chosen = dict(parameters or {})
    _check_parameters(method, chosen)
    common = {"n_bits": n_bits, "random_state": seed, "similarity": similarity, "n_jobs": n_jobs}
    return method(**(common | chosen))


def _check_key(key: str) -> str:
    if key not in _HOMES:
        raise InvalidInput(
            f"expected the key of a system ({', '.join(_HOMES)}) "
            f"or of a group ({', '.join(GROUPS)}); got {key!r}"
        )
    return key


def _check_parameters(method: type[Method], chosen: Mapping[str, Any]) -> None:
    given_apart = {"n_bits", "random_state", "n_jobs"}
    known = [part.name for part in fields(method) if part.init and part.name not in given_apart]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise InvalidInput(
            f"{method.about.name} has the parameters {', '.join(known)}; got {', '.join(map(repr, unknown))}"
        )
