"""Put another build of the extension in the place of the installed one, as `make test-sanitizers` does."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any


def load_extension() -> Any:
    """Load and return the file that ``CROSSBYTE_TEST_EXTENSION`` names; None where it names nothing.

    What imports the extension later gets this one, too.
    """
    path = os.environ.get("CROSSBYTE_TEST_EXTENSION")
    if not path:
        return None
    spec = importlib.util.spec_from_file_location("crossbyte._native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crossbyte._native"] = module
    spec.loader.exec_module(module)
    return module
