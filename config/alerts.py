"""The settings of alerts: where messages go, and that no secret ever stands in the configuration.

The addresses of chat services are secrets: who has one can post.
"""

from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cyclewatch.config.routes import Route, TimeOfDay, TimeZone
from cyclewatch.config.secret_reference import MEND, is_reference, wrong_variable
from cyclewatch.config.section import Seconds, Section

SinkType = Literal["slack", "discord", "teams", "feishu", "dingtalk", "pagerduty", "alertmanager", "webhook", "apprise"]
SinkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]

SECRET_ADDRESSES = frozenset({"slack", "discord", "teams", "feishu", "dingtalk", "apprise"})
"""Types whose address lets anybody post who knows it."""

PAGERS = frozenset({"pagerduty", "alertmanager"})
"""Types that know by its key which incident is open: they get no digest, and hear at once that it is over."""

_WITHOUT_KEY = frozenset({"slack", "discord", "teams", "apprise"})


class Sink(Section):
    """Where messages go: a channel, a robot or a service."""

    type: SinkType = Field(
        description="Service: slack, discord, teams, feishu, dingtalk, pagerduty, alertmanager, webhook or apprise."
    )
    url: str = Field(
        default="",
        max_length=4096,
        description="Address; that of a chat or of apprise is a secret: credential:NAME, file:/PATH or env:NAME. "
        "PagerDuty has one.",
    )
    key: str = Field(
        default="",
        max_length=4096,
        description="Where the signing secret (Feishu, DingTalk, webhook), the routing key (PagerDuty) or the login "
        "(Alertmanager) is: credential:NAME, file:/PATH or env:NAME.",
    )
    picture: bool = Field(
        default=True,
        description="A picture of the timeline with each message, where it is taken: Discord, Teams, apprise.",
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type in SECRET_ADDRESSES:
            if not is_reference(self.url):
                raise _wrong(f"the address of {self.type} is a secret: {MEND.format(key='url')}")
        elif self.url:
            _check_address("url", self.url)
        elif self.type != "pagerduty":
            raise _wrong(f"{self.type} needs a url")
        if self.key and self.type in _WITHOUT_KEY:
            raise _wrong(f"{self.type} takes no key: remove it")
        if self.key and not is_reference(self.key):
            raise _wrong(f"key is a secret: {MEND.format(key='key')}")
        if self.type == "pagerduty" and not self.key:
            raise _wrong("pagerduty needs a key, the routing key of the integration")
        for reference in (self.url, self.key):
            if problem := wrong_variable(reference):
                raise _wrong(problem)
        return self


class Alerts(Section):
    """Messages to chats and pagers."""

    reloads: ClassVar[bool] = True

    sinks: dict[SinkName, Sink] = Field(default={}, description="Where messages go, by a name of your choice.")
    routes: tuple[Route, ...] = Field(
        default=(), description="Which messages go to which sinks; empty to tell all sinks, and info in the digest."
    )
    time_zone: TimeZone = Field(default="UTC", description="Time zone of quiet hours and of the digest.")
    digest_at: TimeOfDay = Field(default="09:00", description="When the daily digest is sent.")
    give_up_s: Seconds = Field(
        default=259_200.0, description="Seconds for which a message is tried again before it is given up."
    )
    timeout_s: Seconds = Field(default=10.0, description="Seconds to wait for a service's whole answer.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Hosts that messages may go to; empty for those of the sinks. Where apprise is used, all.",
    )
    proxy: str = Field(
        default="",
        max_length=4096,
        description="Proxy for messages, as http://HOST:PORT, or as credential:NAME, file:/PATH or env:NAME where it "
        "holds a password; the environment's is not used.",
    )
    ca_file: str = Field(
        default="", max_length=4096, description="PEM file of certificate authorities trusted beside the system's."
    )

    @model_validator(mode="after")
    def _has_the_sinks_of_its_routes(self) -> Self:
        for route in self.routes:
            if unknown := next((name for name in route.sinks if name not in self.sinks), None):
                raise _wrong(f"a route names the sink {unknown!r}, which is not configured: add it, or remove the name")
        return self

    @model_validator(mode="after")
    def _holds_apprise_to_its_hosts(self) -> Self:
        if name := next((name for name, sink in self.sinks.items() if sink.type == "apprise"), None):
            if not self.allowed_hosts:
                raise _wrong(
                    f"the sink {name} speaks by apprise to hosts that cannot be read off its address: "
                    "name those of all sinks in allowed_hosts"
                )
            if self.proxy:
                raise _wrong(f"the sink {name} cannot use a proxy, behind which its hosts are not seen: remove either")
        return self

    @field_validator("proxy")
    @classmethod
    def _is_address(cls, proxy: str) -> str:
        if proxy:
            _check_address("proxy", proxy)
        return proxy


def _check_address(key: str, address: str) -> None:
    """Refuse an address with a secret in it, without quoting it."""
    if is_reference(address):
        return
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 (raises where it is no number)
    except ValueError:
        raise _wrong(f"{key} is not an address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _wrong(f"{key} is neither an http address nor credential:NAME, file:/PATH or env:NAME")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _wrong(f"{key} seems to hold a secret: {MEND.format(key=key)}")


def _wrong(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("sink", sentence)
