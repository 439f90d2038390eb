"""What nodes and servers run on: facts, and the environment of each run.

Revision 0005, after 0004. Runs that are there already have an empty environment.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "facts",
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("since_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("target", "subject", name=op.f("pk_facts")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("environment", sa.JSON(), nullable=False, server_default="{}"))
