"""Kernel profiles: what was taken, what it cost, and the statistics of its kernels.

Revision 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "profiles",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("run_id", _ROW_ID, nullable=True),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.String(length=32), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("began_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("totals", sa.JSON(), nullable=False),
        sa.Column("cost", sa.JSON(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
        sa.UniqueConstraint("key", name=op.f("uq_profiles_key")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_profiles_run_id")),
    )
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_profiles_began_at_ns"), ["began_at_ns"], unique=False)
        batch_op.create_index(batch_op.f("ix_profiles_target"), ["target"], unique=False)
    op.create_table(
        "profile_kernels",
        sa.Column("profile_id", _ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("family", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("total_ns", sa.BigInteger(), nullable=False),
        sa.Column("min_ns", sa.BigInteger(), nullable=True),
        sa.Column("max_ns", sa.BigInteger(), nullable=True),
        sa.Column("median_ns", sa.BigInteger(), nullable=True),
        sa.Column("std_ns", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("profile_id", "position", name=op.f("pk_profile_kernels")),
        sa.ForeignKeyConstraint(["profile_id"], ["profiles.id"], name=op.f("fk_profile_kernels_profile_id")),
    )
