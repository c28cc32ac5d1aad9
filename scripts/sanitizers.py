"""Build the extension with sanitizers and run the kernel tests with it: `make test-sanitizers`.

    python scripts/sanitizers.py address     AddressSanitizer and UndefinedBehaviorSanitizer; also with models
                                             and indexes that were damaged and sealed again
    python scripts/sanitizers.py thread      ThreadSanitizer

The build has a folder of its own, `build/sanitizers/`; the installed extension stays as it is. The first
finding ends the tests. Where there is no compiler or no such runtime, it says so and succeeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / "build" / "sanitizers"
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
TESTS = {
    "address": ["test_kernels.py", "test_scan.py", "test_scan_cells.py", "test_hostile_arrays.py"],
    # What one thread does alone is no matter of this one.
    "thread": ["test_scan.py", "test_scan_cells.py", "test_hostile_arrays.py"],
}
CHOSEN = {"address": "", "thread": "thread or visited or agree_with_a_full_sort or last_bit"}

# Python and its libraries are not built with sanitizers, so that each of these has its reason:
OPTIONS = {
    "address": {
        # detect_leaks: the interpreter keeps objects until the process ends.
        # verify_asan_link_order: the runtime is preloaded, because the program itself is not linked with it.
        # detect_stack_use_after_return: GCC 12 loses the frames of functions with AVX-512 registers by it.
        "ASAN_OPTIONS": ":".join(
            f"{name}=0"
            for name in ("detect_leaks", "verify_asan_link_order", "detect_stack_use_after_return")
        ),
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",  # else small objects share blocks in which an overrun is not seen
    },
    "thread": {"TSAN_OPTIONS": "halt_on_error=1"},
}


def compiler_file(name: str) -> str | None:
    """Give the path of a file of the compiler's; None where there is no compiler, or no such file."""
    compiler = os.environ.get("CXX", "c++")
    try:
        found = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    path = found.stdout.strip()
    return path if os.path.isabs(path) else None


def build(sanitizer: str) -> Path:
    """Build the extension, and give its file."""
    folder = BUILDS / sanitizer
    settings = {
        "cmake.define.CROSSBYTE_SANITIZE": sanitizer,
        "cmake.build-type": "RelWithDebInfo",
        "build-dir": str(BUILDS / f"{sanitizer}-objects"),
    }
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--upgrade",
        "--target",
        str(folder),
    ]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    subprocess.run([*command, str(ROOT)], check=True, env=os.environ | {"CROSSBYTE_REQUIRE_NATIVE": "1"})
    (extension,) = (folder / "crossbyte").glob("_native*.so")
    return extension


def run_tests(sanitizer: str, extension: Path, preload: list[str]) -> int:
    """Run the kernel tests with this extension; returns the exit code."""
    environment = os.environ | OPTIONS[sanitizer]
    environment |= {"LD_PRELOAD": " ".join(preload), "CROSSBYTE_TEST_EXTENSION": str(extension)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "auto",
        "--dist",
        "worksteal",
        "-p",
        "no:cacheprovider",
    ]
    command += [
        *(f"tests/compute/{name}" for name in TESTS[sanitizer]),
        "-m",
        "not long",
        "-k",
        CHOSEN[sanitizer],
    ]
    if sanitizer == "thread":
        command = ["setarch", "-R", *command]  # its runtime needs addresses where it expects them
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def run_damage(extension: Path, preload: list[str]) -> int:
    """Put models and indexes that were damaged and sealed again to it; returns the exit code."""
    environment = os.environ | OPTIONS["address"]
    environment |= {"LD_PRELOAD": " ".join(preload), "CROSSBYTE_TEST_EXTENSION": str(extension)}
    command = [sys.executable, "-m", "campaigns.resealed", "--n", "400", "--seed", "4"]
    command += ["--processes", "2", "--no-result", "--anew"]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main(sanitizer: str) -> int:
    """Build and test; returns the exit code."""
    # The C++ library as well, or its exceptions would be looked up before the runtime knows them.
    preload = [compiler_file(name) for name in (RUNTIMES[sanitizer], "libstdc++.so")]
    if None in preload:
        print(f"skipped: no C++ compiler with {RUNTIMES[sanitizer]} (gcc) is at hand")
        return 0
    started = time.monotonic()
    extension = build(sanitizer)
    built = time.monotonic()
    runtimes = [path for path in preload if path]
    code = run_tests(sanitizer, extension, runtimes)
    if code == 0 and sanitizer == "address":
        code = run_damage(extension, runtimes)
    ended = time.monotonic()
    print(f"== {sanitizer}: built in {built - started:.0f} s, tested in {ended - built:.0f} s, exit {code}")
    return code


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in RUNTIMES:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
