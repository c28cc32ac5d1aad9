"""Folders of tests that need more than Python are run only by those who name them."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["is_asked_for"]


def is_asked_for(folder: Path, config: pytest.Config) -> bool:
    """Whether a folder, or something in it, was named on the command line."""
    asked = [Path(str(each).split("::")[0]).resolve() for each in config.invocation_params.args]
    return any(path == folder or folder in path.parents for path in asked)
