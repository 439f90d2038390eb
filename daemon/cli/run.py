"""`cyclewatch run`."""

from cyclewatch.daemon.cli.common import ConfigOption, errors_exit, settings_or_exit


def run(config: ConfigOption = None) -> None:
    """Watch the servers of this node until stopped (SIGTERM or Ctrl-C drains; SIGHUP reads the configuration again)."""
    import faulthandler

    from cyclewatch.config.load import load_settings
    from cyclewatch.daemon.memory import settle_memory, without_terminal

    with without_terminal():
        from cyclewatch.daemon.log import configure_logging
        from cyclewatch.daemon.server import Server
    from cyclewatch.daemon.signals import reload_on_hangup, stop_on_signals

    settings = settings_or_exit(config)
    configure_logging(settings.log)
    faulthandler.enable()  # systemd's watchdog sends SIGABRT: where the threads hang is then in the journal
    with errors_exit():
        server = Server(settings, load=lambda: load_settings(config))
        settle_memory()
        with stop_on_signals(server), reload_on_hangup(server):
            server.run()
