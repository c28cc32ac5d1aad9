"""Tasks for other processes, which import nothing else: a process is there at once."""

from __future__ import annotations

import os

from crossbyte.errors import InvalidInput


def judge_number(number: int) -> None:
    """Take what is 0 or more; die at 3."""
    if number == 3:
        os._exit(7)
    if number < 0:
        raise InvalidInput(f"{number} is below 0; give another")
