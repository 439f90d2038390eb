"""Alembic's environment: always a connection handed over by `migrate.upgrade`."""

from alembic import context

from cyclewatch.daemon.store import incident_models  # noqa: F401 (its tables belong to `Base.metadata`)
from cyclewatch.daemon.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
