"""`cyclewatch config`: check a configuration, show it, print the reference."""

import json

import typer

from cyclewatch.collectors.fetch import public_url
from cyclewatch.config.reference import settings_reference
from cyclewatch.daemon.cli.common import ConfigOption, settings_or_exit
from cyclewatch.daemon.store.database import url_without_password

app = typer.Typer(help="The configuration: check it, show it, print every key.", no_args_is_help=True)


@app.command("check")
def check(config: ConfigOption = None) -> None:
    """Check file and environment; exit code 2 and a sentence for each wrong key."""
    settings_or_exit(config)
    typer.echo("configuration is good")


@app.command("show")
def show(config: ConfigOption = None) -> None:
    """Print the settings that hold, as JSON, without passwords."""
    document = settings_or_exit(config).model_dump(mode="json")
    document["store"]["url"] = url_without_password(document["store"]["url"])
    for target in document["targets"]:
        target["url"] = public_url(target["url"])
    typer.echo(json.dumps(document, indent=2))


@app.command("reference")
def reference() -> None:
    """Print a TOML file with every key, what it means and its default."""
    typer.echo(settings_reference(), nl=False)
