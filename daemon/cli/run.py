"""`cyclewatch run`."""

from cyclewatch.daemon.cli.common import ConfigOption, errors_exit, settings_or_exit


def run(config: ConfigOption = None) -> None:
    """Watch the servers of this node until stopped (SIGTERM or Ctrl-C drains)."""
    from cyclewatch.daemon.log import configure_logging
    from cyclewatch.daemon.server import Server, stop_on_signals

    settings = settings_or_exit(config)
    configure_logging(settings.log)
    with errors_exit():
        server = Server(settings)
        with stop_on_signals(server):
            server.run()
