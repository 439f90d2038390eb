"""What the API answers from: each method is one operation, and may block for as long as the database does."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from pydantic import Field

from cyclewatch.daemon.incidents.incident import Act
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.incidents import IncidentStore
from cyclewatch.daemon.triage.documents import (
    ExpectationDocument,
    IncidentDetail,
    IncidentDocument,
    RegressionDetail,
    RegressionDocument,
    SilenceDocument,
    incident_detail,
)
from cyclewatch.daemon.triage.requests import ActRequest, ExpectationRequest, SilenceRequest
from cyclewatch.daemon.web.api.operations import Call, Nothing, Operation, Page, Signature
from cyclewatch.daemon.web.api.problem import Problem


class RegressionsPage(Page):
    """Which regressions."""

    improvements: bool = Field(default=False, description="Lasting improvements too.")


class IncidentsPage(Page):
    """Which incidents."""

    ended: bool = Field(default=False, description="Those too that are over.")


class SpansPage(Page):
    """Which silences or announced changes."""

    over: bool = Field(default=False, description="Those too whose time has passed.")


class Resources:
    """Regressions, incidents, silences and announced changes; `now_ns` gives UTC nanoseconds.

    Raises (every operation):
        Problem: there is no such thing.
        ActError: it cannot be done.
        RequestError: what was asked for makes no sense.
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, history: StoreHistory, incidents: IncidentStore, now_ns: Callable[[], int]) -> None:
        self._history = history
        self._incidents = incidents
        self._now_ns = now_ns

    def list_regressions(self, call: Call[RegressionsPage, Nothing]) -> list[RegressionDocument]:
        """Regressions, newest first."""
        page = call.query
        views = self._history.regressions(all_directions=page.improvements, limit=page.limit, before=page.before)
        return [RegressionDocument.model_validate(view) for view in views]

    def show_regression(self, call: Call[Nothing, Nothing]) -> RegressionDetail:
        """One regression with its split and causes."""
        view = self._history.regression(call.number)
        if view is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no regression {call.number}")
        return RegressionDetail.model_validate(view)

    def list_incidents(self, call: Call[IncidentsPage, Nothing]) -> list[IncidentDocument]:
        """Incidents, newest first."""
        page = call.query
        found = self._incidents.incidents(ended=page.ended, limit=page.limit, before=page.before)
        return [IncidentDocument.model_validate(one) for one in found]

    def show_incident(self, call: Call[Nothing, Nothing]) -> IncidentDetail:
        """One incident with its members and its book."""
        view = self._incidents.view(call.number, self._now_ns())
        if view is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no incident {call.number}")
        return incident_detail(view)

    def acknowledge_incident(self, call: Call[Nothing, ActRequest]) -> IncidentDocument:
        """Somebody looks at it."""
        return self._act(Act.ACKNOWLEDGE, call)

    def resolve_incident(self, call: Call[Nothing, ActRequest]) -> IncidentDocument:
        """It is over."""
        return self._act(Act.RESOLVE, call)

    def rebase_incident(self, call: Call[Nothing, ActRequest]) -> IncidentDocument:
        """It stays: the new normal."""
        return self._act(Act.REBASE, call)

    def reopen_incident(self, call: Call[Nothing, ActRequest]) -> IncidentDocument:
        """It is not over."""
        return self._act(Act.REOPEN, call)

    def list_silences(self, call: Call[SpansPage, Nothing]) -> list[SilenceDocument]:
        """Silences that hold or will, newest first."""
        page = call.query
        found = self._incidents.silences(self._now_ns(), over=page.over, limit=page.limit, before=page.before)
        return [SilenceDocument.model_validate(one) for one in found]

    def add_silence(self, call: Call[Nothing, SilenceRequest]) -> SilenceDocument:
        """No messages about incidents whose targets and cause match, for a time."""
        asked, now_ns = call.body, self._now_ns()
        added = self._incidents.silence(asked.target, asked.cause, *asked.span_ns(now_ns), asked.who, asked.why, now_ns)
        return SilenceDocument.model_validate(added)

    def end_silence(self, call: Call[Signature, Nothing]) -> SilenceDocument:
        """End a silence now."""
        return SilenceDocument.model_validate(self._incidents.end_silence(call.number, call.query.who, self._now_ns()))

    def list_expectations(self, call: Call[SpansPage, Nothing]) -> list[ExpectationDocument]:
        """Announced changes whose time has not passed, newest first."""
        page = call.query
        found = self._incidents.expectations(self._now_ns(), over=page.over, limit=page.limit, before=page.before)
        return [ExpectationDocument.model_validate(one) for one in found]

    def add_expectation(self, call: Call[Nothing, ExpectationRequest]) -> ExpectationDocument:
        """Announce a change: what begins on matching targets in its time is its effect, not an alarm."""
        asked, now_ns = call.body, self._now_ns()
        added = self._incidents.expect(asked.target, *asked.span_ns(now_ns), asked.who, asked.why, now_ns)
        return ExpectationDocument.model_validate(added)

    def end_expectation(self, call: Call[Signature, Nothing]) -> ExpectationDocument:
        """End an announced change now."""
        return ExpectationDocument.model_validate(
            self._incidents.end_expectation(call.number, call.query.who, self._now_ns())
        )

    def _act(self, act: Act, call: Call[Nothing, ActRequest]) -> IncidentDocument:
        return IncidentDocument.model_validate(
            self._incidents.act(call.number, act, call.body.who, call.body.why, self._now_ns())
        )

    def operations(self) -> list[Operation[Any, Any]]:
        """All that can be asked."""
        none, act, one = Nothing, ActRequest, IncidentDocument
        return [
            Operation(
                "GET", "/regressions", self.list_regressions, RegressionDocument, RegressionsPage, none, many=True
            ),
            Operation("GET", "/regressions/{number}", self.show_regression, RegressionDetail, none, none),
            Operation("GET", "/incidents", self.list_incidents, one, IncidentsPage, none, many=True),
            Operation("GET", "/incidents/{number}", self.show_incident, IncidentDetail, none, none),
            Operation("POST", "/incidents/{number}/acknowledge", self.acknowledge_incident, one, none, act),
            Operation("POST", "/incidents/{number}/resolve", self.resolve_incident, one, none, act),
            Operation("POST", "/incidents/{number}/rebase", self.rebase_incident, one, none, act),
            Operation("POST", "/incidents/{number}/reopen", self.reopen_incident, one, none, act),
            Operation("GET", "/silences", self.list_silences, SilenceDocument, SpansPage, none, many=True),
            Operation("POST", "/silences", self.add_silence, SilenceDocument, none, SilenceRequest, status=201),
            Operation("DELETE", "/silences/{number}", self.end_silence, SilenceDocument, Signature, none),
            Operation("GET", "/expectations", self.list_expectations, ExpectationDocument, SpansPage, none, many=True),
            Operation(
                "POST", "/expectations", self.add_expectation, ExpectationDocument, none, ExpectationRequest, status=201
            ),
            Operation("DELETE", "/expectations/{number}", self.end_expectation, ExpectationDocument, Signature, none),
        ]
