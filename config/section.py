"""What all tables of the configuration file have in common."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400 * 400)]
Ratio = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A table of the configuration file; unknown keys are refused.

    `reloads` says that a running daemon takes it over when the configuration is read again; others need a restart.
    """

    reloads: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", frozen=True)
