"""SGLang's `/start_profile`: the second choice, since it stops the scheduler while the trace is stopped and written.

A number of steps, never open-ended; GPU activities where there is a GPU; no stacks, which SGLang records by default,
and no shapes. HTTP 200 says that profiling began, and nothing of what came of it: the file is looked for.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from cyclewatch.collectors.fetch import public_url

STEPS_MAX = 50
_REQUEST_TIMEOUT_S = 30.0
_ANSWER_SHOWN = 120
_RANKS = re.compile(r"-(TP|DP|PP)-(\d+)(?=[-.])")


class StartProfileError(Exception):
    """The server did not do what it was asked for, or no file came of it; one sentence.

    `unanswered` tells that it was asked and did not answer in time: it may do it all the same.
    """

    def __init__(self, text: str, *, unanswered: bool = False) -> None:
        super().__init__(text)
        self.unanswered = unanswered


class StartedProfile:
    """A profile of `steps` scheduler steps that a server has been asked for, by all of its ranks.

    Files are named `ID-TP-RANK….trace.json.gz`; SGLang writes them in place, so that one is complete only when its
    size stands still. `begun` tells that the server may be recording: it goes on until it has made the steps, however
    long that takes, or `stop` is called.
    """

    def __init__(self, url: str, directory: Path, steps: int, *, gpu: bool) -> None:
        if not 0 < steps <= STEPS_MAX:
            raise StartProfileError(f"{steps} steps: ask for 1 to {STEPS_MAX}")
        self.id = f"cyclewatch-{secrets.token_hex(4)}"
        self.begun = False
        self._url = url
        self._directory = directory
        self._body = {
            "output_dir": str(directory),
            "num_steps": steps,
            "activities": ["GPU" if gpu else "CPU"],
            "with_stack": False,
            "record_shapes": False,
            "profile_id": self.id,
        }
        self._sizes: dict[Path, int] = {}

    def begin(self, client: httpx.Client) -> None:
        """Ask the server; returns when it says that it has begun.

        Raises:
            StartProfileError: it refuses, wants a key, or does not answer.
        """
        try:
            self._ask(client, "/start_profile", self._body, _REQUEST_TIMEOUT_S)
        except StartProfileError as error:
            self.begun = error.unanswered
            raise
        self.begun = True

    def stop(self, client: httpx.Client, timeout_s: float) -> None:
        """End the recording before its steps are made; returns when the server says that it has written its files.

        Raises:
            StartProfileError: it does not say so within `timeout_s`, or has recorded nothing any more.
        """
        self._ask(client, "/stop_profile", None, timeout_s)

    def _ask(self, client: httpx.Client, path: str, body: Mapping[str, object] | None, timeout_s: float) -> None:
        shown = public_url(self._url)
        try:
            answer = client.post(f"{self._url}{path}", json=body, timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise StartProfileError(
                f"{shown}: {path}: {type(error).__name__}: is the server running?",
                unanswered=isinstance(error, httpx.ReadTimeout),
            ) from None
        if answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise StartProfileError(f"{shown}: {path} needs the server's admin key, which cyclewatch has not")
        if answer.status_code != httpx.codes.OK:
            text = json.dumps(answer.text[:_ANSWER_SHOWN])
            raise StartProfileError(f"{shown}: {path} answers {answer.status_code}: {text}")

    def files(self) -> tuple[Path, ...]:
        """The complete files, one a rank: those whose size is the same as at the last call, and not 0."""
        found = {path: path.stat().st_size for path in self._directory.glob(f"{self.id}-*.trace.json.gz")}
        complete = tuple(sorted(path for path, size in found.items() if size and self._sizes.get(path) == size))
        self._sizes = found
        return complete

    def wait(self, ranks: int, deadline: Callable[[], bool], pause: Callable[[], object]) -> tuple[Path, ...]:
        """The files of `ranks` ranks; `pause` is called between two looks.

        Raises:
            StartProfileError: `deadline` has passed and there are fewer.
        """
        while len(files := self.files()) < ranks:
            if deadline():
                raise StartProfileError(
                    f"{public_url(self._url)}: /start_profile said that it began, but {len(files)} of {ranks} files "
                    f"came to {self._directory}: may the server write there, and does it have requests?"
                )
            pause()
        return files

    def remove(self) -> None:
        """Remove what there is of the files."""
        for path in list(self._directory.glob(f"{self.id}-*")):
            with contextlib.suppress(OSError):
                path.unlink()


def is_of_rank(name: str, ranks: Mapping[str, int | None]) -> bool:
    """Whether a file's name is that of a rank: `ranks` are its numbers by `TP`, `DP` and `PP`, None where not known.

    SGLang names a dimension beside TP only where there are several in it.
    """
    return all(ranks.get(dimension) in {None, int(number)} for dimension, number in _RANKS.findall(name))
