"""What the doctor says of the API."""

from collections.abc import Iterator, Mapping

from cyclewatch.config.web import Web
from cyclewatch.daemon.check import Check, Level
from cyclewatch.daemon.secrets import SecretError
from cyclewatch.daemon.web.api.access import access_with


def web_checks(settings: Web, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether the API can be used, and by whom; nothing where the endpoint is off.

    Credentials and variables of the service may not be there for a command: then there is nothing to say.
    """
    if not settings.enabled or _is_of_the_service(settings.token, environ):
        return
    try:
        access = access_with(settings.token, environ)
    except SecretError as error:
        yield Check("API", Level.BAD, f"nobody can use it: web.token: {error}", "mend the token, and start the daemon")
        return
    if access.token:
        yield Check("API", Level.GOOD, "can be used with its token")
    else:
        mend = "to act through it, name a token in web.token: docs/api.md says how"
        yield Check("API", Level.NOTE, "can only be read, and only from this node", mend)


def _is_of_the_service(reference: str, environ: Mapping[str, str]) -> bool:
    kind, _, name = reference.partition(":")
    needed = {"credential": "CREDENTIALS_DIRECTORY", "env": name}.get(kind)
    return needed is not None and needed not in environ
