"""Sinks, as the settings name them: their secrets are read here, and their addresses checked."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import httpx

from cyclewatch.config.alerts import SECRET_ADDRESSES, Alerts, Sink
from cyclewatch.config.secret_reference import is_reference
from cyclewatch.daemon.alerts.apprise_post import ApprisePoster, is_installed
from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.post import HttpPoster, Poster
from cyclewatch.daemon.alerts.senders import pagerduty
from cyclewatch.daemon.alerts.senders.apprise import Apprise
from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.alerts.senders.sender import Sender
from cyclewatch.daemon.loopback import is_loopback
from cyclewatch.daemon.secrets import SecretError, secret

_APPRISE_SCHEMA = re.compile(r"([a-z0-9]+)://\S+")
_SENDS_ITS_KEY = frozenset({"pagerduty", "alertmanager"})


class SinkError(Exception):
    """A sink cannot be used as it is configured; one sentence without secrets."""


def sender_for(name: str, alerts: Alerts, environ: Mapping[str, str]) -> Sender:
    """The sender of the sink `name`.

    Raises:
        SinkError: there is none of that name, or its address or a secret is missing or wrong.
    """
    sink = alerts.sinks.get(name)
    if sink is None:
        known = ", ".join(alerts.sinks) or "none: see docs/alerts.md"
        raise SinkError(f"no sink is named {name!r}; configured: {known}")
    if sink.type == "apprise":
        return Apprise(_apprise_destination(name, sink, environ))
    destination = _destination(name, sink, environ)
    allowed = _hosts(alerts.allowed_hosts)
    if allowed and destination.host not in allowed:
        raise SinkError(f"sink {name}: {destination.host} is not in alerts.allowed_hosts: add it there")
    return SENDERS[sink.type](destination)


def poster_for(sender: Sender, alerts: Alerts, environ: Mapping[str, str]) -> Poster:
    """The way to that sink's host and to no other; by apprise, to the allowed hosts.

    Raises:
        SinkError: the proxy's secret or the file of certificates cannot be used.
    """
    context = ssl.create_default_context()
    if alerts.ca_file:
        try:
            context.load_verify_locations(Path(alerts.ca_file))
        except (OSError, ValueError) as error:  # what ssl raises is an OSError
            said = getattr(error, "strerror", None) or "no certificate"
            raise SinkError(f"alerts.ca_file: {alerts.ca_file}: {said}") from None
    if isinstance(sender, Apprise):
        return ApprisePoster(sender.destination, _hosts(alerts.allowed_hosts), alerts.timeout_s, alerts.ca_file)
    try:
        proxy = secret(alerts.proxy, environ) if is_reference(alerts.proxy) else alerts.proxy
    except SecretError as error:
        raise SinkError(f"alerts.proxy: {error}") from None
    if proxy and _http_url(proxy) is None:
        raise SinkError("alerts.proxy: not the address of an http proxy: write http://HOST:PORT")
    return HttpPoster({sender.destination.host}, alerts.timeout_s, context, proxy)


def _destination(name: str, sink: Sink, environ: Mapping[str, str]) -> Destination:
    try:
        url = secret(sink.url, environ) if is_reference(sink.url) else sink.url or pagerduty.URL
        key = secret(sink.key, environ) if sink.key else ""
    except SecretError as error:
        raise SinkError(f"sink {name}: {error}") from None
    destination = Destination(name, url, key, url_is_secret=is_reference(sink.url))
    _check(destination, shows_secret=sink.type in SECRET_ADDRESSES or (bool(key) and sink.type in _SENDS_ITS_KEY))
    return destination


def _apprise_destination(name: str, sink: Sink, environ: Mapping[str, str]) -> Destination:
    """The whole address is secret but for the kind of service, since for many the host's place holds a token."""
    if not is_installed():
        raise SinkError(f"sink {name}: apprise is not installed: pip install 'cyclewatch[apprise]'")
    try:
        address = secret(sink.url, environ)
    except SecretError as error:
        raise SinkError(f"sink {name}: {error}") from None
    schema = _APPRISE_SCHEMA.fullmatch(address)
    if schema is None:
        raise SinkError(f"sink {name}: its url is no address of apprise: write SCHEMA://...")
    return Destination(name, f"apprise://{schema[1]}", address)


def _check(destination: Destination, *, shows_secret: bool) -> None:
    """Refuse what is no address, and one that would send a secret in the clear."""
    url = _http_url(destination.url)
    if url is None:
        raise SinkError(f"sink {destination.name}: its url is no http address: correct it")
    if url.userinfo:
        raise SinkError(f"sink {destination.name}: its url holds a user name, which is not used: remove it")
    if url.scheme == "http" and shows_secret and not is_loopback(url.host):
        raise SinkError(f"sink {destination.name}: http would show its secret to the network: use https")


def _http_url(text: str) -> httpx.URL | None:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    # What cannot stand in a host's name comes back percent-encoded.
    return url if url.scheme in {"http", "https"} and url.host and "%" not in url.host else None


def _hosts(listed: tuple[str, ...]) -> frozenset[str]:
    return frozenset(host.lower() for host in listed)
