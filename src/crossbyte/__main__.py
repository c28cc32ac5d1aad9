"""``python -m crossbyte``: the command line."""

from __future__ import annotations

from crossbyte.cli.app import main

if __name__ == "__main__":
    main()
