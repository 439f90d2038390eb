"""Incidents, what silences and expects them, and the outbox of messages about them.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "attempts",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("sink", sa.String(length=64), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("boot", sa.String(length=64), nullable=False),
        sa.Column("monotonic_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("wait_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index("ix_attempts_sink", ["sink", "id"], unique=False)

    op.create_table(
        "expectations",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("target", sa.String(length=128), nullable=False),
        sa.Column("from_ns", sa.BigInteger(), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_expectations")),
    )
    with op.batch_alter_table("expectations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_expectations_until_ns"), ["until_ns"], unique=False)

    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=320), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    # It is there from the beginning: its row is what everyone locks who changes incidents.
    op.execute("INSERT INTO leases (name, holder, until_ns) VALUES ('incidents', '', 0)")

    op.create_table(
        "outbox",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("thread", sa.String(length=64), nullable=False),
        sa.Column("sink", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message", sa.JSON(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("not_before_ns", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_attempt_ns", sa.BigInteger(), nullable=True),
        sa.Column("done_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sa.UniqueConstraint("key", name=op.f("uq_outbox_key")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_outbox_done_at_ns"), ["done_at_ns"], unique=False)
        batch_op.create_index("ix_outbox_sink", ["sink", "state"], unique=False)
        batch_op.create_index("ix_outbox_thread", ["thread"], unique=False)

    op.create_table(
        "silences",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("target", sa.String(length=128), nullable=False),
        sa.Column("cause", sa.String(length=64), nullable=False),
        sa.Column("from_ns", sa.BigInteger(), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    with op.batch_alter_table("silences", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_silences_until_ns"), ["until_ns"], unique=False)

    op.create_table(
        "incidents",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("cause", sa.JSON(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("effect", sa.Float(), nullable=False),
        sa.Column("ci_low", sa.Float(), nullable=False),
        sa.Column("ci_high", sa.Float(), nullable=False),
        sa.Column("started_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("opened_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("joined_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("quiet_since_ns", sa.BigInteger(), nullable=True),
        sa.Column("ended_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("returns", sa.Integer(), nullable=False),
        sa.Column("expectation_id", _ROW_ID, nullable=True),
        sa.Column("told", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["expectation_id"], ["expectations.id"], name=op.f("fk_incidents_expectation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
        sa.UniqueConstraint("key", name=op.f("uq_incidents_key")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_ended_at_ns"), ["ended_at_ns"], unique=False)
        batch_op.create_index(batch_op.f("ix_incidents_started_at_ns"), ["started_at_ns"], unique=False)
        batch_op.create_index(batch_op.f("ix_incidents_state"), ["state"], unique=False)

    op.create_table(
        "incident_members",
        sa.Column("incident_id", _ROW_ID, nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("regression", sa.String(length=64), nullable=False),
        sa.Column("started_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("effect", sa.Float(), nullable=False),
        sa.Column("accepted_effect", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], name=op.f("fk_incident_members_incident_id")),
        sa.PrimaryKeyConstraint(
            "incident_id", "node", "target", "rank", "phase", "kind", name=op.f("pk_incident_members")
        ),
    )
    with op.batch_alter_table("incident_members", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incident_members_ended_at_ns"), ["ended_at_ns"], unique=False)
        batch_op.create_index(batch_op.f("ix_incident_members_regression"), ["regression"], unique=False)

    op.create_table(
        "incident_notes",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("incident_id", _ROW_ID, nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("what", sa.String(length=16), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], name=op.f("fk_incident_notes_incident_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident_notes")),
    )
    with op.batch_alter_table("incident_notes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incident_notes_incident_id"), ["incident_id"], unique=False)
