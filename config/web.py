"""The settings of the HTTP endpoint."""

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from cyclewatch.config.secret_reference import MEND, is_reference, wrong_variable
from cyclewatch.config.section import Section


class Web(Section):
    """The HTTP endpoint for Prometheus, probes and the API."""

    enabled: bool = Field(default=True, description="Serve /metrics, /healthz, /readyz and /api/v1.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=9472, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    token: str = Field(
        default="",
        max_length=4096,
        description="Where the token of /api/v1 is: credential:NAME, file:/PATH or env:NAME; without one it is only "
        "read, and only from this node.",
    )

    @field_validator("token")
    @classmethod
    def _is_named(cls, token: str) -> str:
        """Refuse a token that stands there itself, without quoting it."""
        if token and not is_reference(token):
            raise PydanticCustomError("token", f"the token is a secret: {MEND.format(key='token')}")
        if problem := wrong_variable(token):
            raise PydanticCustomError("token", problem)
        return token
