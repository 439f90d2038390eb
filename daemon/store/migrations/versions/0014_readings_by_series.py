"""In SQLite the readings of a series lie together, in order of time.

Revision 0014, after 0013. As they came, each reading of a series lay on a page of its own, and a month of them was
130,000 pages to read. PostgreSQL stays as it is: its tables have no such order.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    if op.get_bind().dialect.name != "sqlite":
        return
    op.create_table(
        "samples_by_series",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_samples_series_id")),
        sa.PrimaryKeyConstraint("series_id", "at_ns", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
    # In the order in which they will lie, so that pages are filled one after the other.
    op.execute(
        "INSERT INTO samples_by_series (series_id, at_ns, value)"
        " SELECT series_id, at_ns, value FROM samples ORDER BY series_id, at_ns"
    )
    op.drop_table("samples")
    op.rename_table("samples_by_series", "samples")
    op.create_index(op.f("ix_samples_at_ns"), "samples", ["at_ns"])
