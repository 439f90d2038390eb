"""SGLang's `/start_profile`, from a server that need not tell the truth."""

import json
from pathlib import Path

import httpx
import pytest

from cyclewatch.collectors.start_profile import StartedProfile, StartProfileError, is_of_rank

URL = "http://127.0.0.1:30000"


class Server:
    """What the server answers, and what it was asked."""

    def __init__(self, status: int = 200, text: str = "Start profiling.\n") -> None:
        self.status, self.text = status, text
        self.bodies: list[dict[str, object]] = []

    def client(self) -> httpx.Client:
        def answer(request: httpx.Request) -> httpx.Response:
            assert request.url.path == "/start_profile"
            self.bodies.append(json.loads(request.content))
            return httpx.Response(self.status, text=self.text)

        return httpx.Client(transport=httpx.MockTransport(answer))


def begin(server: Server, directory: Path) -> StartedProfile:
    started = StartedProfile(URL, directory, 10, gpu=True)
    with server.client() as client:
        started.begin(client)
    return started


def test_it_asks_for_some_steps_of_the_gpu_and_nothing_that_costs_more(tmp_path: Path) -> None:
    server = Server()
    started = begin(server, tmp_path)
    assert server.bodies == [
        {
            "output_dir": str(tmp_path),
            "num_steps": 10,
            "activities": ["GPU"],
            "with_stack": False,
            "record_shapes": False,
            "profile_id": started.id,
        }
    ]


@pytest.mark.parametrize("steps", [0, -1, 51, 10**9])
def test_it_is_never_open_ended(tmp_path: Path, steps: int) -> None:
    with pytest.raises(StartProfileError, match="1 to 50"):
        StartedProfile(URL, tmp_path, steps, gpu=False)


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (401, "", "admin key"),
        (403, "", "admin key"),
        (500, "Profiling is already\nin progress" + "x" * 999, "answers 500"),
        (404, "", "answers 404"),
        (301, "", "answers 301"),
    ],
)
def test_a_server_that_refuses_is_one_sentence(tmp_path: Path, status: int, text: str, said: str) -> None:
    with pytest.raises(StartProfileError, match=said) as caught:
        begin(Server(status, text), tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    started = StartedProfile("http://user:secret@127.0.0.1:1", tmp_path, 1, gpu=True)
    with httpx.Client() as client, pytest.raises(StartProfileError, match="is the server running") as caught:
        started.begin(client)
    assert "secret" not in str(caught.value)


def test_a_file_is_complete_when_it_has_stopped_growing(tmp_path: Path) -> None:
    """SGLang writes it in place."""
    started = begin(Server(), tmp_path)
    path = tmp_path / f"{started.id}-TP-0.trace.json.gz"
    (tmp_path / "other-TP-0.trace.json.gz").write_bytes(b"x")
    assert started.files() == ()
    path.write_bytes(b"")
    assert started.files() == started.files() == ()
    path.write_bytes(b"x")
    assert started.files() == ()
    path.write_bytes(b"xy")
    assert started.files() == ()
    assert started.files() == (path,)
    started.remove()
    assert [left.name for left in tmp_path.iterdir()] == ["other-TP-0.trace.json.gz"]


def test_two_hundred_ok_and_no_file_is_a_failure_of_one_sentence(tmp_path: Path) -> None:
    started = begin(Server(), tmp_path)
    looks: list[int] = []
    with pytest.raises(StartProfileError, match="0 of 1 files came"):
        started.wait(1, lambda: len(looks) > 3, lambda: looks.append(1))


def test_it_waits_for_the_files_of_all_ranks(tmp_path: Path) -> None:
    started = begin(Server(), tmp_path)
    paths = [tmp_path / f"{started.id}-TP-{rank}.trace.json.gz" for rank in (0, 1)]
    arriving = iter(paths)

    def pause() -> None:
        if (path := next(arriving, None)) is not None:
            path.write_bytes(b"x")

    assert started.wait(2, lambda: False, pause) == tuple(paths)


@pytest.mark.parametrize(
    ("name", "ranks", "matches"),
    [
        ("ID-TP-0.trace.json.gz", {"TP": 0}, True),
        ("ID-TP-1.trace.json.gz", {"TP": 0}, False),
        ("ID-TP-10.trace.json.gz", {"TP": 1}, False),
        ("ID-TP-1.trace.json.gz", {"TP": 10}, False),
        ("ID-TP-0-DP-1.trace.json.gz", {"TP": 0, "DP": 1}, True),
        ("ID-TP-0-DP-1.trace.json.gz", {"TP": 0, "DP": 0}, False),
        ("ID-TP-0-DP-1.trace.json.gz", {"TP": 0, "DP": None}, True),
        ("ID-TP-0-DP-None.trace.json.gz", {"TP": 0, "DP": 1}, True),
        ("ID-TP-0.trace.json.gz", {"TP": 0, "DP": 1, "PP": 1}, True),
        ("ID-TP-0-DP-1-PP-12-EP-3.trace.json.gz", {"TP": 0, "DP": 1, "PP": 12}, True),
        ("ID-TP-0-DP-1-PP-12-EP-3.trace.json.gz", {"TP": 0, "DP": 1, "PP": 1}, False),
        ("ID-TP-3-EP-3-DECODE.trace.json.gz", {"TP": 3}, True),
    ],
)
def test_a_file_is_told_by_the_whole_numbers_of_its_rank(
    name: str, ranks: dict[str, int | None], matches: bool
) -> None:
    """By what the name has and the rank is known to be; experts have no rank of their own here."""
    assert is_of_rank(name, ranks) is matches
