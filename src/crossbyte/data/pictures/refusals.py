"""The words for a picture that was not read: what was expected, what came, what to do."""

from __future__ import annotations

from crossbyte.data.pictures.picture import PictureLimits

__all__ = ["bytes_message", "crash_message", "refusal_message", "slow_message"]


def bytes_message(n_bytes: int, limits: PictureLimits) -> str:
    """Say that a file is too large."""
    return (
        f"expected a picture of at most {_mebibytes(limits.max_bytes)}, got {_mebibytes(n_bytes)}; "
        "save it smaller, or as JPEG"
    )


def refusal_message(kind: str, reason: str, limits: PictureLimits) -> str:
    """Put into words what the child says: ``pixels``, ``memory``, or ``damaged`` and the decoder's reason."""
    if kind == "pixels":
        return (
            f"expected at most {limits.max_pixels / 1e6:g} million pixels, the picture declares {reason}; "
            "save a smaller copy"
        )
    if kind == "memory":
        return (
            f"expected a picture decoded within {_mebibytes(limits.memory)} of memory, this one wants more; "
            "save a smaller copy"
        )
    if any(word in reason.lower() for word in ("truncated", "eof", "end of file")):
        return f"the picture ends too early ({reason}); copy or download it again"
    return f"the picture is damaged ({reason}); open and save it in a picture editor, or download it again"


def slow_message(limits: PictureLimits) -> str:
    """Say that decoding took too long."""
    return (
        f"expected a picture that is decoded in {limits.seconds:g} s, this one took longer and was given up; "
        "open and save it in a picture editor"
    )


def crash_message(code: int) -> str:
    """Say that the decoder crashed, twice."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the picture crashed its decoder ({how}); open and save it in a picture editor"


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB" if n_bytes >= 10 * 2**20 else f"{n_bytes:,} bytes"
