import os
from pathlib import Path

import pytest

from cyclewatch.config.load import MAX_FILE_BYTES, ConfigError, load_settings
from cyclewatch.config.settings import Settings


def load(tmp_path: Path, text: str = "", **variables: str) -> Settings:
    """Settings from a file with this text and an environment of these variables only."""
    path = tmp_path / "cyclewatch.toml"
    path.write_text(text)
    return load_settings(path, variables)


def error(tmp_path: Path, text: str = "", **variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **variables)
    return str(caught.value).replace(str(tmp_path / "cyclewatch.toml"), "FILE")


def test_without_file_and_variables_there_are_defaults() -> None:
    assert load_settings(None, {"PATH": "/bin"}).model_dump() == Settings().model_dump()


def test_values_come_from_the_file(tmp_path: Path) -> None:
    """Every kind of value: text, number, switch, path, list of tables."""
    settings = load(
        tmp_path,
        """
        node = "n1"
        state_dir = "/data"
        [[targets]]
        name = "a"
        url = "http://127.0.0.1:30000"
        [rings]
        enabled = false
        [windows]
        length_s = 2
        """,
    )
    assert (settings.node, settings.state_dir, settings.rings.enabled) == ("n1", Path("/data"), False)
    assert settings.windows.length_s == 2
    assert str(settings.targets[0].url) == "http://127.0.0.1:30000/"
    assert settings.database_url == "sqlite:////data/cyclewatch.db"


def test_the_environment_wins_over_the_file_key_by_key(tmp_path: Path) -> None:
    """The other keys of the same table stay."""
    text = "[web]\nport = 1\nhost = '::1'"
    settings = load(tmp_path, text, CYCLEWATCH_WEB__PORT="2", CYCLEWATCH_NODE="n", CYCLEWATCH_RINGS__ENABLED="false")
    assert (settings.web.port, settings.web.host, settings.node, settings.rings.enabled) == (2, "::1", "n", False)


def test_a_whole_table_can_be_given_as_json(tmp_path: Path) -> None:
    """The way to name targets without a file."""
    settings = load(tmp_path, CYCLEWATCH_TARGETS='[{"name": "a", "url": "http://h:1"}]', CYCLEWATCH_WEB='{"port": 7}')
    assert settings.targets[0].name == "a"
    assert settings.web.port == 7


def test_only_the_environment_that_was_given_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own is the default, and not mixed in."""
    monkeypatch.setenv("CYCLEWATCH_WEB__PORT", "5")
    assert load(tmp_path).web.port == Settings.model_fields["web"].default.port
    assert load_settings(tmp_path / "cyclewatch.toml").web.port == 5


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    """As containers do; a path on the command line wins."""
    (tmp_path / "a.toml").write_text("node = 'a'")
    (tmp_path / "b.toml").write_text("node = 'b'")
    variables = {"CYCLEWATCH_CONFIG": str(tmp_path / "a.toml")}
    assert load_settings(None, variables).node == "a"
    assert load_settings(tmp_path / "b.toml", variables).node == "b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nod = 'x'", "FILE: nod: no such key; did you mean node?"),
        ("[ring]\n", "FILE: ring: no such key; did you mean rings?"),
        ("[rings]\ndirectry = '/x'", "FILE: rings.directry: no such key; did you mean rings.directory?"),
        ("[detection]\nmin_efect = 0.1", "FILE: detection.min_efect: no such key; did you mean detection.min_effect?"),
        ("[[targets]]\nnme = 'a'\nurl = 'http://h'", "FILE: targets.0.nme: no such key; did you mean targets.0.name?"),
        ("zzzzzz = 1", "FILE: zzzzzz: no such key"),
    ],
)
def test_a_misspelt_key_in_the_file_is_named_with_the_right_one(tmp_path: Path, text: str, said: str) -> None:
    assert said in error(tmp_path, text).splitlines()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CYCLEWATCH_NOD", "CYCLEWATCH_NODE"),
        ("CYCLEWATCH_RINGS__DIRECTRY", "CYCLEWATCH_RINGS__DIRECTORY"),
        ("CYCLEWATCH_RINGS_DIRECTORY", "CYCLEWATCH_RINGS__DIRECTORY"),
        ("CYCLEWATCH_RING__DIRECTORY", "CYCLEWATCH_RINGS__DIRECTORY"),
        ("CYCLEWATCH_RINGDIR", "CYCLEWATCH_RING_DIR"),
        ("CYCLEWATCH_NODE__NAME", "CYCLEWATCH_NODE"),
        ("cyclewatch_web__prt", "CYCLEWATCH_WEB__PORT"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_right_one(tmp_path: Path, name: str, near: str) -> None:
    """The variable, never the file that has nothing to do with it."""
    said = error(tmp_path, **{name: "1"})
    assert said == f"environment variable {name.upper()}: no such setting; did you mean {near}?"


def test_every_wrong_key_is_named_at_once(tmp_path: Path) -> None:
    """One round of mending."""
    said = error(tmp_path, "nod = 1\n[web]\nport = 70000\n[log]\nlevel = 'loud'").splitlines()
    assert [line.split(": ")[1] for line in said] == ["web.port", "log.level", "nod"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[web]\nport = 'x'", "web.port"),
        ("[web]\nport = 65536", "web.port"),
        ("[web]\nport = -1", "web.port"),
        ("[rings]\ninterval_s = 0", "rings.interval_s"),
        ("[rings]\ninterval_s = nan", "rings.interval_s"),
        ("[rings]\ninterval_s = inf", "rings.interval_s"),
        ("[rings]\ndirectory = 5", "rings.directory"),
        ("[rings]\nenabled = 'perhaps'", "rings.enabled"),
        ("[detection]\nmin_effect = 0", "detection.min_effect"),
        ("[detection]\nfalse_alarms_per_hour = 0", "detection.false_alarms_per_hour"),
        ("[log]\nlevel = 'loud'", "log.level"),
        ("rings = 5", "rings"),
        ("node = 5", "node"),
        ("targets = 'a'", "targets"),
        ("[[targets]]\nname = 'a'\nurl = 'ftp://h'", "targets.0.url"),
        ("[[targets]]\nurl = 'http://h'", "targets.0.name"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    (line,) = error(tmp_path, text).splitlines()
    assert line.startswith(f"FILE: {key}: ")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CYCLEWATCH_WEB__PORT", "http", "environment variable CYCLEWATCH_WEB__PORT: web.port: "),
        ("CYCLEWATCH_WEB__PORT", "", "environment variable CYCLEWATCH_WEB__PORT: web.port: "),
        ("CYCLEWATCH_WEB", '{"prt": 1}', "environment variable CYCLEWATCH_WEB: web.prt: no such key; did you mean"),
        ("CYCLEWATCH_WEB", "9472", "environment variable CYCLEWATCH_WEB: web: "),
        ("CYCLEWATCH_WEB", "[", "environment variable CYCLEWATCH_WEB: not JSON; single keys are set by CYCLEWATCH_WEB"),
        ("CYCLEWATCH_TARGETS", "http://h", "environment variable CYCLEWATCH_TARGETS: not JSON"),
        ("CYCLEWATCH_TARGETS", '[{"name": "a"}]', "environment variable CYCLEWATCH_TARGETS: targets.0.url: "),
    ],
)
def test_a_wrong_value_in_the_environment_is_named_with_its_variable(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    """Although there is a file too."""
    assert error(tmp_path, "[web]\nport = 1", **{name: value}).startswith(said)


def test_an_error_never_shows_a_password(tmp_path: Path) -> None:
    """Values are not quoted."""
    said = error(tmp_path, "[store]\nurl = 5", CYCLEWATCH_TARGETS='[{"name": "a", "url": "ftp://u:s3cret@h"}]')
    assert "s3cret" not in said


def test_variables_of_the_plugin_and_of_kubernetes_are_left_alone(tmp_path: Path) -> None:
    """A service named cyclewatch puts its own into every container beside it."""
    load(
        tmp_path,
        CYCLEWATCH_RING_DIR="/run/rings",
        CYCLEWATCH_RING_GROUP="g",
        CYCLEWATCH_SERVICE_HOST="10.0.0.1",
        CYCLEWATCH_SERVICE_PORT="9472",
        CYCLEWATCH_PORT="tcp://10.0.0.1:9472",
        CYCLEWATCH_PORT_9472_TCP_ADDR="10.0.0.1",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"node = ",
        b"\x00\x01",
        b"node = '\xff'",
        b"a = " + b"[" * 100_000,
        b"a = " + b"9" * 5000,
        b"node = 'a'\nnode = 'b'",
    ],
    ids=["half", "binary", "latin", "deep", "huge number", "twice"],
)
def test_what_is_not_toml_is_said_with_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cyclewatch.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert str(caught.value).startswith(f"{path}: not TOML: ")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A log or a database named by mistake; sparse, so that it costs nothing here."""
    path = tmp_path / "cyclewatch.toml"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(ConfigError, match=f"longer than {MAX_FILE_BYTES} bytes: is this the configuration file"):
        load_settings(path, {})


@pytest.mark.parametrize(("place", "reason"), [("missing.toml", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_said_with_the_reason(tmp_path: Path, place: str, reason: str) -> None:
    path = tmp_path / place
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert str(caught.value) == f"{path}: cannot be read: {reason}"


def test_a_file_without_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, so the refusal is played."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_settings(tmp_path / "cyclewatch.toml", {})


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_default_file_that_must_not_be_looked_at_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Its directory holds credentials: to go on with the defaults would be to ignore it."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("cyclewatch.config.load.DEFAULT_PATH", tmp_path / "cyclewatch.toml")
    for name in ("stat", "open"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(ConfigError, match=f"cannot be read: {error.strerror}"):
        load_settings(None, {})


@pytest.mark.parametrize(
    ("second", "said"),
    [(("a", 30001), "the name a: give each its own"), (("b", 30000), "the url http://h:30000/: give each its own")],
)
def test_targets_that_are_one_are_refused(tmp_path: Path, second: tuple[str, int], said: str) -> None:
    """One of two with one name would never be asked."""
    path = tmp_path / "cyclewatch.toml"
    path.write_text(
        "".join(f'[[targets]]\nname = "{name}"\nurl = "http://h:{port}"\n' for name, port in (("a", 30000), second))
    )
    with pytest.raises(ConfigError, match=f"targets: two have {said}"):
        load_settings(path, {})


def test_settings_cannot_be_changed() -> None:
    """What was checked is what holds."""
    with pytest.raises(ValueError, match="frozen"):
        Settings().node = "other"
