"""The `cyclewatch` command."""

import os

# Before numpy is loaded: its linear algebra would start a thread for every core of the node, beside the server's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cyclewatch.daemon.cli.app import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
