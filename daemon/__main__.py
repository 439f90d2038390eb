"""The `cyclewatch` command."""

import os
import sys

# Before numpy is loaded: its linear algebra would start a thread for every core of the node, beside the server's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cyclewatch.daemon.cli.app import app


def main() -> None:
    """Run the command line; a database that stops answering in the midst of it is one sentence as well."""
    try:
        app()
    except Exception as error:
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 (it takes longer to load than most commands)

        from cyclewatch.daemon.store.database import reason_of  # noqa: PLC0415 (the same)

        if not isinstance(error, SQLAlchemyError):
            raise
        sys.exit(f"cyclewatch: the database does not answer: {reason_of(error)}")


if __name__ == "__main__":
    main()
