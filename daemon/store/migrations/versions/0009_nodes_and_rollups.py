"""Several nodes in one database, and what is older than two days by the minute and by the hour.

Revision 0009, after 0008. What is there already belongs to the node of the latest run.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KEYS = {
    "facts": ["node", "target", "subject"],
    "rings": ["node", "key"],
    "detector_states": ["node", "key"],
    "status": ["node", "name"],
}
_UNIQUE = ("series", "change_events")


def upgrade() -> None:
    """Apply."""
    for table, key in _KEYS.items():
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(sa.Column("node", sa.String(length=253), nullable=False, server_default=""))
            batch_op.drop_constraint(batch_op.f(f"pk_{table}"), type_="primary")
            batch_op.create_primary_key(batch_op.f(f"pk_{table}"), key)
    for table in _UNIQUE:
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(sa.Column("node", sa.String(length=253), nullable=False, server_default=""))
            batch_op.drop_constraint(batch_op.f(f"uq_{table}_key"), type_="unique")
            batch_op.create_unique_constraint(batch_op.f(f"uq_{table}_node"), ["node", "key"])
    with op.batch_alter_table("runs", schema=None) as batch_op:  # the names of node and target alone may have 317
        batch_op.alter_column("key", existing_type=sa.String(length=160), type_=sa.String(length=500))
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("node", sa.String(length=253), nullable=False, server_default=""))
    with op.batch_alter_table("levels", schema=None) as batch_op:
        batch_op.add_column(sa.Column("length_ns", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "rollups",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_rollups")),
    )
    latest = "COALESCE((SELECT node FROM runs ORDER BY last_seen_ns DESC LIMIT 1), '')"
    for table in (*_KEYS, *_UNIQUE, "profiles"):
        op.execute(sa.text(f"UPDATE {table} SET node = {latest}"))  # noqa: S608 (names of our own)
