"""One row for each hour of a rank and phase, for timelines of weeks and years.

Revision 0010, after 0009. The upkeep of the store fills it, from the oldest window on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "hours",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("rank", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("mean_ns", sa.Float(), nullable=False),
        sa.Column("p50_ns", sa.Float(), nullable=False),
        sa.Column("p99_ns", sa.Float(), nullable=False),
        sa.Column("max_ns", sa.Float(), nullable=False),
        sa.Column("log_ratio", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_hours_run_id")),
        sa.PrimaryKeyConstraint("run_id", "rank", "phase", "start_ns", name=op.f("pk_hours")),
    )
    op.create_index(op.f("ix_hours_start_ns"), "hours", ["start_ns"])
