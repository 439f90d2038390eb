"""Quantile sketch of each window cell.

Revision 0002, after 0001. Windows that are there already have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("windows", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sketch", sa.LargeBinary(), nullable=True))
