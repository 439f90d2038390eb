"""What a level is judged by besides itself, its tail and its doubt, so that a back-test can ask all of it again.

Revision 0006, after 0005. Levels that are there already have neither.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("levels", schema=None) as batch_op:
        batch_op.add_column(sa.Column("effective", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("tail", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("doubt", sa.LargeBinary(), nullable=True))
