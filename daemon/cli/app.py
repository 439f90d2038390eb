"""The application: commands are registered here."""

import typer

from cyclewatch.daemon.cli import (
    backtest,
    compare,
    configuration,
    db,
    demo,
    detect,
    doctor,
    expect,
    incidents,
    install,
    kernels,
    metrics,
    model,
    outbox,
    probe,
    profile,
    profiles,
    regressions,
    roofline,
    run,
    silences,
    sink,
    status,
)

app = typer.Typer(
    name="cyclewatch",
    help="Did serving get slower, and what made it slower? Watches SGLang servers on this node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("status")(status.status)
app.command("compare", context_settings={"ignore_unknown_options": True})(compare.compare)
app.command("detect")(detect.detect)
app.command("backtest")(backtest.backtest)
app.command("doctor")(doctor.doctor)
app.command("install")(install.install)
app.command("uninstall")(install.uninstall)
app.command("kernels")(kernels.kernels)
app.command("metrics")(metrics.metrics)
app.command("probe")(probe.probe)
app.command("profile")(profile.profile)
app.command("roofline")(roofline.roofline)
app.command("expect")(expect.expect)
app.add_typer(regressions.app, name="regressions")
app.add_typer(incidents.app, name="incidents")
app.add_typer(silences.app, name="silences")
app.add_typer(expect.app, name="expectations")
app.add_typer(profiles.app, name="profiles")
app.add_typer(model.app, name="model")
app.add_typer(sink.app, name="sink")
app.add_typer(outbox.app, name="outbox")
app.add_typer(db.app, name="db")
app.add_typer(configuration.app, name="config")
