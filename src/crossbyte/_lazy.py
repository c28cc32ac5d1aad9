"""Give a package public names that are imported when first used (PEP 562), so that it imports quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        The module of each public name.
    """

    def import_name(name: str) -> object:
        if name not in homes:
            exported = ", ".join(sorted(homes))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it exports {exported}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name, lambda: sorted({*homes, *vars(sys.modules[package]).get("__all__", ())})
