"""How far the steps of a regression are from what their GPU allows, beside its split.

Revision 0013, after 0012. Null in what was found before, and where it is not known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("regressions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("physical_bound", sa.JSON(), nullable=True))
