"""Messages about incidents, and the words for what was changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import FirstCause, Links, Severity, State
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.incidents.change import Change, change_before
from cyclewatch.daemon.incidents.incident import Incident, IncidentState, Told
from cyclewatch.daemon.incidents.reconcile import Decision
from cyclewatch.daemon.incidents.wording import worded
from made_incidents import MEMBER, MINUTE, START_NS, incident

NOW_NS = START_NS + 10 * MINUTE
BARE = Incidents()


def told(number: int) -> Told:
    return Told(number, NOW_NS, IncidentState.OPEN, Severity.WARNING, 0.1, 1, "unexplained")


def test_a_message_in_five_lines_says_what_why_since_when_and_what_next() -> None:
    one = incident(change="SGLang 0.5.22 to 0.5.23", told=told(1))
    text = text_of(worded(Decision(one, tell=State.OPENED), 7, BARE, NOW_NS))
    assert [text.title, *map(str, text.lines), text.where] == [
        "12.0% slower: decode on server",
        "What: decode on server (tiny, node node) is 12.0% slower (10.0% to 14.0%)",
        "Users: not measured",
        "Since: 2027-01-15 08:00 UTC, right after SGLang 0.5.22 to 0.5.23",
        "Cause: the power limit of gpu3 was lowered (gpu3.power_limit_w 700, then 400)",
        "Next: compare the limits (nvidia-smi -q -d POWER), and raise the one that was lowered (nvidia-smi -pl)",
        "warning incident 7: cyclewatch incidents show 7",
    ]


@pytest.mark.parametrize("cause", [None, FirstCause("unexplained", "nothing that was read explains it")])
def test_what_is_not_explained_has_no_cause_but_a_next_step(cause: FirstCause | None) -> None:
    message = worded(Decision(incident(cause=cause), tell=State.OPENED), 1, BARE, NOW_NS)
    assert message.cause is None
    assert "cyclewatch compare" in message.next_step


def test_the_end_is_told_with_when_it_was_and_nothing_to_do() -> None:
    one = incident(state=IncidentState.RESOLVED, ended_at_ns=NOW_NS - MINUTE, told=told(2))
    message = worded(Decision(one, tell=State.RESOLVED), 1, BARE, NOW_NS)
    assert (message.at_ns, message.next_step) == (NOW_NS - MINUTE, "")


def test_what_was_announced_is_for_information_only() -> None:
    one = incident(severity=Severity.CRITICAL, expectation=3)
    assert worded(Decision(one, tell=State.EXPECTED), 1, BARE, NOW_NS).severity is Severity.INFO


@pytest.mark.parametrize(("number", "state", "returns"), [(1, "opened", 0), (3, "opened", 5), (3, "grown", 0)])
def test_that_it_is_back_is_said_where_it_was_told_before(number: int, state: str, returns: int) -> None:
    one = incident(returns=5, told=told(number))
    assert worded(Decision(one, tell=State(state)), 1, BARE, NOW_NS).returns == returns


def test_without_addresses_there_are_no_links() -> None:
    assert worded(Decision(incident(), tell=State.OPENED), 1, BARE, NOW_NS).links == Links()


def test_nothing_is_worded_that_is_not_told() -> None:
    with pytest.raises(ValueError, match="nothing is to be told"):
        worded(Decision(incident()), 1, BARE, NOW_NS)


@given(st.text(), st.text(), st.text())
def test_names_from_elsewhere_make_no_address_that_leads_elsewhere(node: str, target: str, kind: str) -> None:
    settings = Incidents(dashboard="https://g.example.com/d", runbook="https://w.example.com/b")
    one: Incident = incident(node=node, target=target, cause=FirstCause(kind, "x"), members=(MEMBER,))
    text = text_of(worded(Decision(one, tell=State.OPENED), 1, settings, NOW_NS))
    assert all(
        link.startswith(("https://g.example.com/d?var-node=", "https://w.example.com/b/")) for _, link in text.links
    )


def change(kind: str, before: str = "1", after: str = "2", subject: str = "x", **others: str) -> Change:
    return Change("node", others.get("target", "server"), START_NS, kind, subject, before, after)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], ""),
        ([change("version", "0.5.22", "0.5.23", "sglang")], "SGLang 0.5.22 to 0.5.23"),
        ([change("argument", "null", '"fa3"', "attention_backend")], 'attention_backend null to "fa3"'),
        ([change("environment", "580.1", "580.2", "driver", target="node")], "driver 580.1 to 580.2"),
        ([change("model", "a", "b"), change("version", "", "2")], "SGLang nothing to 2; model a to b"),
        ([change("restart"), change("xid")], ""),
        (
            [change("argument", subject=f"a{number}") for number in range(5)],
            "a0 1 to 2; a1 1 to 2; a2 1 to 2 and 2 more",
        ),
    ],
)
def test_changes_are_told_in_few_words(changes: list[Change], words: str) -> None:
    assert change_before(changes, "node", "server", START_NS) == words
