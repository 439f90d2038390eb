"""The API on a store of its own, asked without a network in between."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from sqlalchemy import Connection

from cyclewatch.daemon.incidents.incident import Incident
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.incident_rows import write_incident
from cyclewatch.daemon.store.incidents import IncidentStore
from cyclewatch.daemon.web.api.access import Access
from cyclewatch.daemon.web.api.app import build_api
from cyclewatch.daemon.web.api.resources import Resources
from made_incidents import MINUTE, START_NS

NOW_NS = START_NS + 10 * MINUTE
TOKEN = "0123456789abcdef-tokenSecretTokenSecret"


class Api:
    """A context manager; `address` is that of its database, and `access` says who may ask."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.engine = open_database(address, create=True)
        self.store = IncidentStore(self.engine)
        self.operations = Resources(StoreHistory(self.engine), self.store, lambda: NOW_NS).operations()
        self.refused: list[str] = []
        self.app = build_api(self.operations, access or Access(TOKEN), self.refused.append, late_s=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.dispose()

    def begin(self) -> Any:
        """A transaction, to store what is asked for."""
        return self.engine.begin()

    def keep(self, *incidents: Incident) -> list[int]:
        """Store incidents; gives their numbers."""
        connection: Connection
        with self.engine.begin() as connection:
            return [write_incident(connection, one) for one in incidents]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = TOKEN,
        headers: Mapping[str, str | bytes] | None = None,
        client: str = "127.0.0.1",
        host: str = "127.0.0.1:9472",
        raises: bool = True,
    ) -> httpx.Response:
        """The answer; a body that is not bytes goes as JSON. `raises` shows faults of the application as they are."""
        sent: dict[str, str | bytes] = {"host": host}
        if token:
            sent["authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not None:
            sent["content-type"] = "application/json"

        request = httpx.Request(
            method, f"http://127.0.0.1:9472{path}", content=content, headers=_raw({**sent, **(headers or {})})
        )

        async def exchange() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(client, 50_000), raise_app_exceptions=raises)
            async with httpx.AsyncClient(transport=transport) as asker:
                return await asker.send(request)

        return asyncio.run(exchange())

    def document(self, method: str, path: str, body: Any = None) -> Any:
        """What a good answer says."""
        answer = self.ask(method, path, body)
        assert answer.is_success, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()


def _raw(headers: Mapping[str, str | bytes]) -> list[tuple[bytes, bytes]]:
    """Headers as they go over the wire, where anything may come."""
    return [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers.items()]


def a_file(directory: Path) -> str:
    """The address of a database in `directory`."""
    return f"sqlite:///{directory / 'cyclewatch.db'}"


def problem(answer: httpx.Response, status: int) -> str:
    """The sentence of a refusal, whose form is checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail"}
    assert document["status"] == status
    sentence: str = document["detail"]
    assert sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    return sentence
