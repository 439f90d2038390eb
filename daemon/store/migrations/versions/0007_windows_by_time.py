"""Windows of a series lie by time in the index of their key: evidence looked at all that ever were.

Revision 0007, after 0006.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("windows", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("pk_windows"), type_="primary")
        batch_op.create_primary_key(batch_op.f("pk_windows"), ["run_id", "rank", "phase", "start_ns", "bucket"])
