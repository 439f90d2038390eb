"""Which message of the outbox goes first.

Revision 0011, after 0010. What waits already goes before all others, in the order in which it was stored.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.add_column(sa.Column("urgency", sa.Integer(), nullable=False, server_default="0"))
        batch_op.drop_index("ix_outbox_sink")
        batch_op.create_index("ix_outbox_sink", ["sink", "state", "urgency", "id"], unique=False)
        batch_op.drop_index("ix_outbox_thread")
        batch_op.create_index("ix_outbox_thread", ["thread", "sink", "state"], unique=False)
