"""Where a sink's messages go, with its secrets, and how these are kept out of every text."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

MASK = "***"
_SHORTEST_SECRET = 6
"""Parts of a secret address that are shorter, such as `api`, say nothing and are left readable."""


@dataclass(frozen=True)
class Destination:
    """Address and key of a sink. `key` is empty where it has none; `url_is_secret` where who knows it can post."""

    name: str
    url: str = field(repr=False)
    key: str = field(default="", repr=False)
    url_is_secret: bool = True

    @property
    def host(self) -> str:
        """The host alone, in lower case; no secret."""
        return httpx.URL(self.url).host.lower()

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        url = httpx.URL(self.url)
        return f"{url.scheme}://{url.netloc.decode()}{f'/{MASK}' if self.url_is_secret else url.path}"

    def without_secrets(self) -> "Destination":
        """The same place with masks for secrets: what is made for it may be shown."""
        return Destination(self.name, self.shown, MASK if self.key else "", url_is_secret=self.url_is_secret)

    def masked(self, text: str) -> str:
        """`text` of others, which may quote what was sent to them, without the secrets."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def _secrets(self) -> Iterator[str]:
        if self.key:
            yield self.key
            yield base64.b64encode(self.key.encode()).decode()
            yield from _telling(self.key)
        if self.url_is_secret:
            yield self.url
            path = httpx.URL(self.url).raw_path.decode()
            yield from _telling(path)


def _telling(secret: str) -> list[str]:
    """The parts of an address or a login that say something."""
    return [part for part in re.split(r"[/?&=:@]", secret) if len(part) >= _SHORTEST_SECRET]
