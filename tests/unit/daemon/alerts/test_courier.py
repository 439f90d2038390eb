"""What a courier does when services and the database fail it; its clock is put on by hand."""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import event, insert, select
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from alert_messages import URLS, sender
from couriers import DAY_S, SECOND_NS, Lab, status, unreachable
from cyclewatch.daemon.alerts.delivery.courier import Way
from cyclewatch.daemon.alerts.exchange import Request, Response
from cyclewatch.daemon.alerts.message import Severity, State
from cyclewatch.daemon.alerts.sinks import SinkError
from cyclewatch.daemon.store.incident_models import AttemptRow


@pytest.fixture(name="lab")
def _lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.engine.dispose()


def posted(lab: Lab) -> list[str]:
    """Incident and state of what came, in order."""
    documents = [json.loads(request.body) for _, request in lab.service.posted]
    return [f"{one['incident']} {one['state']}" for one in documents]


def test_messages_of_an_incident_arrive_in_order(lab: Lab) -> None:
    for number, state in enumerate((State.OPENED, State.GROWN, State.ACKNOWLEDGED), 1):
        lab.put("1", number, state)
    lab.turn_for(10)
    lab.put("1", 4, State.RESOLVED)
    lab.turn_for(10)
    assert posted(lab) == ["1 opened", "1 grown", "1 acknowledged", "1 resolved"]
    assert set(lab.standings().values()) == {"delivered"}
    assert lab.counts == ["delivered"] * 4


def test_a_backlog_goes_out_by_severity_and_what_is_still_slow_before_what_is_over(lab: Lab) -> None:
    """Whatever was stored first; an incident that has become severe brings its earlier messages with it."""
    lab.put("noted", 1, severity=Severity.INFO)
    lab.put("over", 1, State.RESOLVED, severity=Severity.CRITICAL)
    lab.put("slow", 1)
    lab.put("worse", 1)
    lab.put("severe", 1, severity=Severity.CRITICAL)
    lab.put("worse", 2, State.GROWN, severity=Severity.CRITICAL)
    lab.turn_for(10)
    told = ["worse opened", "severe opened", "worse grown", "over resolved", "slow opened", "noted opened"]
    assert posted(lab) == told


def test_what_was_over_before_it_could_be_told_is_one_message(lab: Lab) -> None:
    """Its end, which says since when until when; what comes after it is told for itself."""
    lab.service.answers = unreachable
    lab.put("1", 1)
    lab.put("1", 2, State.GROWN)
    lab.turn_for(60)
    lab.put("1", 3, State.RESOLVED)
    lab.put("1", 4, State.OPENED)
    lab.service.posted.clear()
    lab.service.answers = lambda _: None
    lab.turn_for(600)
    assert posted(lab) == ["1 resolved", "1 opened"]
    assert list(lab.standings().values()) == ["together", "together", "delivered", "delivered"]


@pytest.mark.parametrize(("arrives", "standing"), [(True, "delivered"), (False, "together")])
def test_what_is_over_while_it_is_being_told_is_not_told_again(lab: Lab, arrives: bool, standing: str) -> None:
    def meanwhile(_: Request) -> Response | None:
        lab.service.answers = lambda _: None
        lab.put("1", 2, State.RESOLVED)
        return None if arrives else status(503)

    lab.service.answers = meanwhile
    lab.put("1", 1)
    lab.turn_for(60)
    assert posted(lab) == ["1 opened", "1 resolved"]
    assert lab.standings() == {"1:1:sink": standing, "1:2:sink": "delivered"}


def test_the_end_of_the_quiet_hours_tells_of_what_could_not_be_told_before_them(lab: Lab) -> None:
    lab.service.answers = unreachable
    lab.put("1", 1)
    lab.turn_for(60)
    lab.put("1", 2, State.RESOLVED, held_s=3600)
    lab.put("2", 1, held_s=3600)
    lab.turn_for(3000, at_least_s=10)
    lab.hands.pass_s(600)
    lab.service.posted.clear()
    lab.service.answers = lambda _: None
    lab.turn_for(600)
    ((_, request),) = lab.service.posted
    assert [line.split(":")[0] for line in json.loads(request.body)["digest"]] == ["incident 2", "incident 1"]


def test_what_is_stuck_holds_up_its_own_incident_alone(lab: Lab) -> None:
    lab.service.answers = lambda request: status(500) if b'"incident":"1"' in request.body else None
    lab.put("1", 1)
    lab.put("1", 2, State.GROWN)
    lab.put("2", 1)
    lab.turn_for(60)
    assert "2 opened" in posted(lab)
    assert "1 grown" not in posted(lab)
    assert lab.standings() == {"1:1:sink": "pending", "1:2:sink": "pending", "2:1:sink": "delivered"}


def test_a_refused_message_is_dead_at_once_and_what_follows_is_sent(lab: Lab) -> None:
    lab.service.answers = lambda request: status(400) if b'"opened"' in request.body else None
    lab.put("1", 1)
    lab.turn_for(10)
    lab.put("1", 2, State.RESOLVED)
    lab.turn_for(10)
    assert lab.rows() == [("1:1:sink", "dead", "HTTP 400"), ("1:2:sink", "delivered", "")]


@pytest.mark.parametrize("number", [401, 403, 404, 410])
def test_the_first_message_after_a_secret_was_rotated_is_sent_with_the_new_one(lab: Lab, number: int) -> None:
    old, new = (sender("webhook", f"https://example.com/{secret}") for secret in ("old", "new"))
    lab.connect = lambda: (old, lab.service)
    lab.put("1", 1)
    lab.turn_for(10)
    lab.connect = lambda: (new, lab.service)
    lab.service.answers = lambda request: status(number) if request.url.endswith("/old") else None
    lab.put("2", 1)
    lab.turn_for(10)
    assert [request.url[-3:] for _, request in lab.service.posted] == ["old", "old", "new"]
    assert lab.standings() == {"1:1:sink": "delivered", "2:1:sink": "delivered"}
    assert lab.counts == ["delivered", "retried", "delivered"]


def test_what_is_refused_while_the_secret_is_being_changed_waits_for_it(lab: Lab) -> None:
    def missing() -> Way:
        raise SinkError("sink sink: file:/key: no such file")

    lab.courier.turn()
    ready = lab.connect
    lab.put("1", 1)

    def meanwhile(_: Request) -> Response:
        lab.connect = missing
        return status(401)

    lab.service.answers = meanwhile
    lab.turn_for(60)
    assert lab.standings() == {"1:1:sink": "pending"}
    lab.connect = ready
    lab.service.answers = lambda _: None
    lab.turn_for(60)
    assert lab.standings() == {"1:1:sink": "delivered"}


def test_no_service_mutes_its_sink_for_longer_than_a_quarter_of_an_hour(lab: Lab) -> None:
    lab.service.answers = lambda _: status(503, retry_after="999999")
    lab.put("1", 1)
    lab.turn_for(1)
    lab.service.answers = lambda _: None
    lab.restart()
    lab.put("2", 1, severity=Severity.CRITICAL)
    lab.turn_for(890)
    assert posted(lab) == ["1 opened"]
    lab.turn_for(20)
    assert posted(lab) == ["1 opened", "2 opened", "1 opened"]


def test_the_time_a_service_asks_for_is_kept_by_the_whole_sink_and_over_a_restart(lab: Lab) -> None:
    lab.service.answers = lambda _: status(429, retry_after="600")
    lab.put("1", 1)
    lab.put("2", 1)
    lab.turn_for(1)
    lab.service.answers = lambda _: None
    lab.restart()
    lab.turn_for(700)
    first, *later = [at_ns for at_ns, _ in lab.service.posted]
    assert len(later) == 2
    assert all(at_ns - first >= 600 * SECOND_NS for at_ns in later)


def test_a_day_without_network_loses_nothing(lab: Lab) -> None:
    """And is not filled with attempts: a sink that fails rests half a minute. What is over by then is told once."""
    for incident in range(20):
        lab.put(str(incident), 1)
    lab.service.answers = unreachable
    lab.turn_for(DAY_S, at_least_s=120)
    assert 20 < len(lab.service.posted) <= DAY_S / 120 + 1
    for incident in range(0, 20, 2):
        lab.put(str(incident), 2, State.RESOLVED)
    lab.service.posted.clear()
    lab.service.answers = lambda _: None
    lab.turn_for(600)
    assert sorted(posted(lab)) == sorted(f"{n} {('resolved', 'opened')[n % 2]}" for n in range(20))
    assert set(lab.standings().values()) == {"delivered", "together"}


def test_after_some_days_it_is_given_up_with_its_reason(lab: Lab) -> None:
    lab.put("1", 1)
    lab.service.answers = unreachable
    lab.turn_for(3 * DAY_S + 400, at_least_s=300)
    ((_, standing, reason),) = lab.rows()
    assert standing == "dead"
    assert reason.startswith("given up after ")
    assert reason.endswith("attempts: 127.0.0.1: no route to host")
    assert lab.counts[-1] == "given_up"


@pytest.mark.parametrize("kind", [kind for kind in URLS if sender(kind).rates])
def test_rates_hold_over_restarts_and_whatever_the_wall_clock_does(tmp_path: Path, kind: str) -> None:
    lab = Lab(tmp_path, kind)
    answer = Response(200, {}, b'{"code": 0, "errcode": 0}', 0)
    lab.service.answers = lambda _: answer
    for incident in range(130):
        lab.put(str(incident), 1)
    for jump_s in (0, 3600, -7200, 40 * DAY_S, -1):
        lab.hands.wall_ns += int(jump_s) * 10**9
        lab.restart()
        lab.turn_for(13)
    lab.turn_for(450)
    assert set(lab.standings().values()) == {"delivered"}
    times_ns = [at_ns for at_ns, _ in lab.service.posted]
    for rate in sender(kind).rates:
        gaps_ns = [later - first for first, later in zip(times_ns, times_ns[rate.count :], strict=False)]
        assert min(gaps_ns) >= rate.seconds * SECOND_NS


def test_what_another_process_sends_to_the_sink_counts_too(tmp_path: Path) -> None:
    """`cyclewatch sink test` takes a slot of its own, and gets none where the courier has taken it."""
    lab = Lab(tmp_path, "slack")
    rates = sender("slack").rates
    taken = lab.outbox.begin("sink", rates, lab.hands.now(), lab.boot)
    assert taken.attempt is not None
    lab.put("1", 1)
    assert lab.courier.turn() == rates[0].seconds
    assert posted(lab) == []
    lab.outbox.end(taken.attempt, lab.hands.now(), lab.boot, 5 * SECOND_NS)
    lab.turn_for(4)
    assert posted(lab) == []
    lab.turn_for(2)
    assert len(lab.service.posted) == 1
    assert lab.outbox.begin("sink", rates, lab.hands.now(), lab.boot).attempt is not None
    assert lab.outbox.begin("sink", rates, lab.hands.now(), lab.boot).wait_ns > 0
    lab.engine.dispose()


def test_a_clock_that_is_put_back_holds_nothing_up(lab: Lab) -> None:
    """What was to be tried again in a minute of the wrong time is tried in a minute of the right one, or at once."""
    lab.service.answers = lambda _: status(503)
    lab.put("1", 1)
    lab.turn_for(200)
    lab.hands.wall_ns -= int(8 * 3600 * 1e9)
    lab.service.answers = lambda _: None
    lab.turn_for(60)
    assert lab.standings() == {"1:1:sink": "delivered"}


def test_attempts_from_the_future_of_another_boot_mute_nothing(tmp_path: Path) -> None:
    """They count as made just now, once: the clock was put back with the reboot."""
    lab = Lab(tmp_path, "dingtalk")
    answer = Response(200, {}, b'{"errcode": 0}', 0)
    lab.service.answers = lambda _: answer
    for incident in range(25):
        lab.put(str(incident), 1)
    lab.turn_for(30)
    assert len(lab.service.posted) == 20
    lab.boot = "next boot"
    lab.hands.monotonic_ns = 10**10
    lab.hands.wall_ns -= 8 * 3600 * SECOND_NS
    lab.service.posted.clear()
    lab.restart()
    lab.turn_for(59)
    assert lab.service.posted == []
    lab.turn_for(2)
    assert len(lab.service.posted) == 5
    lab.engine.dispose()


def test_only_who_holds_the_lease_sends(lab: Lab) -> None:
    lab.put("1", 1)
    lab.leads = False
    lab.turn_for(100)
    assert posted(lab) == []
    lab.leads = True
    lab.turn_for(10)
    assert posted(lab) == ["1 opened"]


def test_what_was_cut_off_counts_from_when_that_is_seen(tmp_path: Path) -> None:
    """It may have arrived at any moment until then."""
    lab = Lab(tmp_path, "slack")

    def killed(_: Request) -> Response:
        lab.hands.pass_s(0.9)
        raise KeyboardInterrupt

    lab.service.answers = killed
    lab.put("1", 1)
    with pytest.raises(KeyboardInterrupt):
        lab.turn_for(1)
    lab.restart()
    killed_ns = lab.hands.monotonic_ns
    lab.service.answers = lambda _: None
    lab.turn_for(5)
    assert [at_ns - killed_ns >= SECOND_NS for at_ns, _ in lab.service.posted] == [False, True]
    assert lab.standings() == {"1:1:sink": "delivered"}


def test_a_sink_without_its_secret_is_said_once_and_gets_everything_later(
    lab: Lab,
) -> None:
    ready = lab.connect

    def missing() -> Way:
        raise SinkError("sink sink: env:URL: the environment has no variable URL")

    lab.connect = missing
    lab.put("1", 1)
    with capture_logs() as said:
        lab.turn_for(3600)
    assert lab.standings() == {"1:1:sink": "pending"}
    assert [one["event"] for one in said] == ["messages wait"]
    lab.connect = ready
    lab.turn_for(60)
    assert posted(lab) == ["1 opened"]


def test_a_sink_that_stays_without_it_gives_up_in_the_end(lab: Lab) -> None:
    def missing() -> Way:
        raise SinkError("no secret")

    lab.connect = missing
    lab.put("1", 1)
    lab.turn_for(3 * DAY_S + 400, at_least_s=300)
    assert lab.rows() == [("1:1:sink", "dead", "no secret")]


def fill(lab: Lab) -> None:
    """Use up what room the pages have, by attempts at other sinks."""
    row = {"sink": "other", "at_ns": 0, "boot": "b", "monotonic_ns": 0, "ended": True, "wait_ns": 0}
    while True:
        with lab.engine.begin() as connection:
            connection.execute(insert(AttemptRow).values(row))


def test_a_full_disk_sends_nothing_that_could_not_be_noted(lab: Lab) -> None:
    """And after that everything, once."""
    lab.put("1", 1)
    with lab.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def full(connection: object, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")  # type: ignore[attr-defined]

    lab.engine.dispose()
    event.listen(lab.engine, "connect", full)
    with pytest.raises(OperationalError, match="full"):
        fill(lab)
    with pytest.raises(OperationalError, match="full"):
        lab.turn_for(10)
    assert posted(lab) == []
    event.remove(lab.engine, "connect", full)
    lab.engine.dispose()
    lab.turn_for(60)
    assert posted(lab) == ["1 opened"]


def test_a_sender_that_fails_by_itself_is_tried_again(lab: Lab) -> None:
    def broken(_: Request) -> Response:
        raise ZeroDivisionError

    lab.service.answers = broken
    lab.put("1", 1)
    lab.put("2", 1)
    lab.turn_for(10)
    assert set(lab.standings().values()) == {"pending"}
    assert "the sender failed by itself: ZeroDivisionError" in lab.rows()[0][2]


def test_an_open_incident_is_sent_again_before_it_expires(tmp_path: Path) -> None:
    """And its end for a while, by an Alertmanager that was restarted; nothing of it is stored."""
    lab = Lab(tmp_path, "alertmanager")
    lab.put("1", 1)
    lab.turn_for(600)
    times_ns = [at_ns for at_ns, _ in lab.service.posted]
    assert 10 <= len(times_ns) <= 12
    assert max(later - first for first, later in pairwise(times_ns)) < 240 * SECOND_NS
    lab.put("1", 2, State.RESOLVED)
    lab.turn_for(600)
    ends = {json.loads(request.body)[0]["endsAt"] for _, request in lab.service.posted[len(times_ns) :]}
    assert len(ends) == 1
    lab.turn_for(600)
    lab.service.posted.clear()
    lab.turn_for(600)
    assert lab.service.posted == []
    assert len(lab.rows()) == 2
    with lab.engine.connect() as connection:
        assert len(connection.execute(select(AttemptRow.id)).all()) == 2


def test_an_end_that_came_about_long_before_it_was_told_is_sent_again_too(tmp_path: Path) -> None:
    """As every one does: an incident is over half an hour after it has become fast."""
    lab = Lab(tmp_path, "alertmanager")
    lab.put("1", 1)
    lab.turn_for(10)
    lab.put("1", 2, State.RESOLVED, ago_s=1800)
    lab.turn_for(1200)
    ends = [at_ns for at_ns, request in lab.service.posted if b"Resolved" in request.body]
    assert 13 <= len(ends) <= 16
    lab.engine.dispose()


@pytest.mark.parametrize("number", [400, 503])
def test_one_that_is_not_taken_again_lets_no_other_expire(tmp_path: Path, number: int) -> None:
    lab = Lab(tmp_path, "alertmanager")
    for incident in "1234":
        lab.put(incident, 1)
    lab.turn_for(10)
    lab.service.answers = lambda request: status(number) if b'"incident":"1"' in request.body else None
    lab.turn_for(900)
    lab.engine.dispose()
    for incident in "1234":
        name = f'"incident":"{incident}"'.encode()
        times_ns = [at_ns for at_ns, request in lab.service.posted if name in request.body]
        assert max(later - first for first, later in pairwise(times_ns)) < 240 * SECOND_NS
        assert len(times_ns) >= 14


def test_what_is_left_of_a_round_comes_first_in_the_next_one(tmp_path: Path) -> None:
    """An Alertmanager that takes three seconds for each of fifty."""
    lab = Lab(tmp_path, "alertmanager")
    for incident in range(50):
        lab.put(f"{incident:02}", 1)
    lab.turn_for(10)
    lab.turn_for(900, at_least_s=3)
    lab.engine.dispose()
    times_ns = defaultdict(list)
    for at_ns, request in lab.service.posted:
        times_ns[json.loads(request.body)[0]["labels"]["incident"]].append(at_ns)
    assert len(times_ns) == 50
    for of_one in times_ns.values():
        of_one.append(lab.hands.monotonic_ns)
        assert max(later - first for first, later in pairwise(of_one)) < 240 * SECOND_NS


def test_an_end_is_never_followed_by_what_came_before_it(tmp_path: Path) -> None:
    """The round of what is sent again was read before the incident was over."""
    lab = Lab(tmp_path, "alertmanager")
    for incident in range(5):
        lab.put(str(incident), 1)
    lab.turn_for(30)
    lab.hands.pass_s(60)
    lab.service.posted.clear()
    lab.courier.turn()
    lab.put("4", 2, State.RESOLVED)
    lab.turn_for(30)
    of_four = [json.loads(request.body)[0] for _, request in lab.service.posted if b'"incident":"4"' in request.body]
    assert "Resolved" in of_four[0]["annotations"]["summary"]
    assert all("Resolved" in alert["annotations"]["summary"] for alert in of_four)


def test_what_was_held_is_told_together(lab: Lab) -> None:
    """What opened and was over within the quiet hours is one line."""
    lab.put("1", 1, held_s=3600)
    lab.put("2", 1, held_s=3600)
    lab.put("1", 2, State.RESOLVED, held_s=3600)
    lab.turn_for(3500)
    assert posted(lab) == []
    lab.turn_for(200)
    ((_, request),) = lab.service.posted
    digest = json.loads(request.body)
    assert digest["state"] == "digest"
    assert [line.split(":")[0] for line in digest["digest"]] == ["incident 2", "incident 1"]
    assert sorted(lab.standings().values()) == ["delivered", "together", "together", "together"]


def test_what_was_held_alone_is_told_as_it_is(lab: Lab) -> None:
    lab.put("1", 1, held_s=60)
    lab.put("1", 2, State.GROWN, held_s=60)
    lab.turn_for(100)
    assert posted(lab) == ["1 grown"]


@pytest.mark.parametrize("put_back_s", [0, 8 * 3600])
def test_what_was_held_for_long_is_given_up_by_how_long_it_fails(tmp_path: Path, put_back_s: int) -> None:
    lab = Lab(tmp_path, give_up_s=600)
    lab.service.answers = unreachable
    lab.put("1", 1, held_s=3600)
    lab.turn_for(3500)
    lab.hands.wall_ns -= put_back_s * SECOND_NS
    lab.turn_for(200)
    assert len(lab.service.posted) > 1
    assert lab.standings() == {"1:1:sink": "pending"}
    lab.service.answers = lambda _: None
    lab.turn_for(300)
    assert lab.standings() == {"1:1:sink": "delivered"}
    lab.engine.dispose()


def test_what_cannot_wait_tells_what_was_held_too(lab: Lab) -> None:
    lab.put("1", 1, held_s=3600)
    lab.put("1", 2, State.GROWN)
    lab.turn_for(4000)
    assert posted(lab) == ["1 grown"]
    assert lab.standings() == {"1:1:sink": "together", "1:2:sink": "delivered"}


def test_a_pager_is_told_each_incident_after_the_quiet_hours(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pagerduty")
    for incident in ("1", "2"):
        lab.put(incident, 1, held_s=60)
        lab.put(incident, 2, State.GROWN, held_s=60)
    lab.turn_for(100)
    assert [json.loads(request.body)["dedup_key"] for _, request in lab.service.posted] == ["1", "2"]
