"""The `cyclewatch` command."""

import os
import sys

# Before numpy is loaded: its linear algebra would start a thread for every core of the node, beside the server's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.store.database import reason_of


def main() -> None:
    """Run the command line; a database that stops answering in the midst of it is one sentence as well."""
    try:
        app()
    except SQLAlchemyError as error:
        sys.exit(f"cyclewatch: the database does not answer: {reason_of(error)}")


if __name__ == "__main__":
    main()
