"""The package builds with a compiler and without one."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from crossbyte.compute import kernels
from support.paths import ROOT


def build_wheel(folder: Path, **environment: str) -> Path:
    """Build a wheel of a clean copy of the sources, so that nothing built in place can leak into it."""
    source = folder / "source"
    built = ("*.so", "__pycache__", ".venv", ".git", ".*_cache", ".hypothesis", "build")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*built))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(source)]
    unset = ("CROSSBYTE_REQUIRE_NATIVE", "CROSSBYTE_PURE_PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in unset}
    subprocess.run(command, check=True, env=clean | environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


def imported_from(wheel: Path, folder: Path) -> str:
    """Import the package from the unpacked wheel alone and say which kernels it uses."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    # The editable install of this environment must not step in.
    program = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'Scikit' not in type(f).__name__];"
        f"sys.path.insert(0, {str(folder / 'site')!r}); import crossbyte.compute.kernels as k;"
        f"assert k.__file__.startswith({str(folder)!r}), k.__file__; print(k.implementation())"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return run.stdout.strip()


@pytest.mark.long
def test_without_a_compiler_the_wheel_is_pure_python(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, CC="/bin/false", CXX="/bin/false")
    assert wheel.name.endswith("py3-none-any.whl")
    assert imported_from(wheel, tmp_path) == "numpy"


@pytest.mark.long
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as archive:
        names = archive.namelist()
    assert "crossbyte/py.typed" in names and "crossbyte/model/estimator.py" in names
    assert all(name.startswith(("crossbyte/", "crossbyte-")) for name in names)


def test_the_extension_is_guarded() -> None:
    """Where it was built for Linux: protected stacks, and tables of functions that nothing overwrites."""
    native = kernels._native
    data = b"" if native is None else Path(native.__file__).read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return  # no extension, or another system
    (first,), (size, number) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    kinds = [struct.unpack_from("<I", data, first + size * i)[0] for i in range(number)]
    assert 0x6474E552 in kinds  # PT_GNU_RELRO
    dynamic = first + size * kinds.index(2)
    offset, length = (struct.unpack_from("<Q", data, dynamic + at)[0] for at in (8, 32))
    entries = dict(struct.unpack_from("<qQ", data, place) for place in range(offset, offset + length, 16))
    assert entries.get(30, 0) & 8  # DT_FLAGS, BIND_NOW
    assert b"__stack_chk_fail" in data
