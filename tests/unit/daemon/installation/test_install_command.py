"""`cyclewatch install` and `uninstall`, on images and on a node whose systemd is played."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cyclewatch.daemon.cli import install as command
from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.installation import carry_out
from cyclewatch.daemon.installation.carry_out import systemd_version, user_of
from cyclewatch.daemon.installation.node_files import (
    InstallError,
    check_command,
    service_name,
    sglang_file,
    users_file,
)
from cyclewatch.daemon.installation.plan import Act, Change, Command, installation, services_watched, uninstallation
from cyclewatch.daemon.installation.seal import is_untouched, sealed

OWN = ("--command", "/opt/cyclewatch/bin/cyclewatch")
SERVICE = "etc/systemd/system/cyclewatch.service"
DROP_IN = "etc/systemd/system/sglang.service.d/50-cyclewatch.conf"
INSTALLED = {
    "etc/sysusers.d/cyclewatch.conf",
    "etc/tmpfiles.d/cyclewatch.conf",
    "etc/cyclewatch/cyclewatch.toml",
    SERVICE,
}


class Node:
    """An image, and the commands that were run on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[tuple[str, ...]] = []

    def run(self, words: Sequence[str]) -> str:
        self.ran.append(tuple(words))
        if words[:2] == ("systemctl", "--version"):
            return "systemd 252 (252.39-1~deb12u2)\n+PAM\n"
        return ""

    def install(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["install", "--root", str(self.root), *OWN, *options])

    def uninstall(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["uninstall", "--root", str(self.root), *options])

    def files(self) -> dict[str, str]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_text() for path in paths}


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    (root := tmp_path / "image").mkdir()
    node = Node(root)
    monkeypatch.setattr(command, "systemd_version", lambda: 252)
    monkeypatch.setattr(
        command, "carry_out", lambda root, steps, tell: carry_out.carry_out(root, steps, tell, node.run)
    )
    return node


@given(st.text())
def test_a_seal_holds_until_a_letter_is_changed(body: str) -> None:
    assert is_untouched(sealed(body))
    assert not is_untouched(sealed(body) + "x")
    assert not is_untouched(body)


def test_first_it_only_says_what_it_would_do(node: Node) -> None:
    """Nobody is there to be asked."""
    answer = node.install("--sglang-service", "sglang")
    assert answer.exit_code == 0
    assert f"write    /{SERVICE}" in answer.output
    assert f"write    /{DROP_IN}" in answer.output
    assert answer.output.endswith("--yes does it.\n")
    assert (node.files(), node.ran) == ({}, [])


def test_with_yes_it_does_it_and_then_there_is_nothing_more_to_do(node: Node) -> None:
    assert node.install("--sglang-service", "sglang", "--check").exit_code == 3
    answer = node.install("--sglang-service", "sglang", "--yes")
    assert answer.exit_code == 0, answer.output
    assert set(node.files()) == {*INSTALLED, DROP_IN}
    assert node.ran == [
        ("systemd-sysusers", f"--root={node.root}", "cyclewatch.conf"),
        ("systemctl", f"--root={node.root}", "enable", "cyclewatch.service"),
    ]
    before = node.files()
    assert node.install("--check").exit_code == 0
    assert node.install("--yes").exit_code == 0
    assert node.files() == before


def test_the_user_is_there_before_a_service_names_its_group(tmp_path: Path) -> None:
    """SGLang's service would not start otherwise."""
    files = [users_file(), sglang_file("sglang.service")]
    steps = installation(tmp_path, files, live=True, force=False)
    assert [type(step) for step in steps[:3]] == [Change, Command, Change]
    assert steps[1] == Command(("systemd-sysusers", "cyclewatch.conf"))
    assert [step.words[1] for step in steps[-3:] if isinstance(step, Command)] == ["daemon-reload", "enable", "restart"]


def test_what_an_earlier_release_wrote_is_brought_up_to_date(node: Node) -> None:
    """And what differs is shown."""
    node.install("--yes")
    (node.root / SERVICE).write_text(sealed("[Service]\nMemoryMax=64M\n"))
    answer = node.install("--check")
    assert answer.exit_code == 3
    assert f"update   /{SERVICE}" in answer.output
    assert "-MemoryMax=64M" in answer.output
    node.install("--yes")
    assert node.install("--check").exit_code == 0


@pytest.mark.parametrize("edit", ["text", "link", "folder"])
def test_what_a_person_has_edited_stays_until_it_is_said_otherwise(node: Node, edit: str) -> None:
    """A masked unit is a link to /dev/null."""
    node.install("--yes")
    service = node.root / SERVICE
    service.unlink() if edit != "text" else service.write_text(service.read_text() + "# mine\n")
    if edit == "link":
        service.symlink_to("/dev/null")
    elif edit == "folder":
        service.mkdir()
    answer = node.install("--yes")
    assert f"edited   /{SERVICE}: left as it is" in answer.output
    assert node.install("--check").exit_code == 3
    assert node.install("--yes", "--force").exit_code == 0
    assert node.install("--check").exit_code == 0
    saved = node.root / f"{SERVICE}.saved"
    assert saved.is_symlink() if edit == "link" else saved.exists()


def test_the_configuration_belongs_to_people_from_the_first_day_on(node: Node) -> None:
    node.install("--yes")
    (node.root / "etc/cyclewatch/cyclewatch.toml").write_text("node = 'mine'\n")
    assert "yours    /etc/cyclewatch/cyclewatch.toml" in node.install("--yes", "--force").output
    assert node.files()["etc/cyclewatch/cyclewatch.toml"] == "node = 'mine'\n"
    node.uninstall("--yes")
    assert set(node.files()) == {"etc/cyclewatch/cyclewatch.toml"}


def test_uninstalled_it_leaves_the_data_alone(node: Node) -> None:
    node.install("--yes", "--sglang-service", "sglang")
    node.ran.clear()
    database = node.root / "var/lib/cyclewatch/cyclewatch.db"
    database.parent.mkdir(parents=True)
    database.write_text("windows")
    assert "--yes does it" in node.uninstall().output
    assert SERVICE in node.files()
    answer = node.uninstall("--yes")
    assert answer.exit_code == 0, answer.output
    assert set(node.files()) == {"etc/cyclewatch/cyclewatch.toml", "var/lib/cyclewatch/cyclewatch.db"}
    assert not (node.root / DROP_IN).parent.exists()
    assert node.ran == [("systemctl", f"--root={node.root}", "disable", "cyclewatch.service")]
    node.uninstall("--yes", "--purge")
    assert node.files() == {}
    assert node.uninstall("--purge").output == "nothing is installed\n"


def test_uninstalling_keeps_what_was_edited_too(node: Node) -> None:
    node.install("--yes")
    (node.root / SERVICE).write_text("[Service]\n")
    assert f"edited   /{SERVICE}" in node.uninstall("--yes").output
    assert SERVICE in node.files()
    node.uninstall("--yes", "--force")
    assert SERVICE not in node.files()


def test_drop_ins_of_other_people_stay(node: Node) -> None:
    node.install("--yes", "--sglang-service", "sglang")
    other = node.root / "etc/systemd/system/sglang.service.d/override.conf"
    other.write_text("[Service]\n")
    node.uninstall("--yes")
    assert other.exists()


def test_services_that_are_watched_need_not_be_named_again(node: Node) -> None:
    node.install("--yes", "--sglang-service", "b.service", "--sglang-service", "a@.service")
    assert services_watched(node.root) == ["a@.service", "b.service"]
    assert "sglang.conf" not in node.install("--yes").output
    assert len([path for path in node.files() if path.endswith("50-cyclewatch.conf")]) == 2


def test_a_watched_service_that_is_gone_does_not_stop_an_upgrade(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those that are named now have to exist."""
    node.install("--yes", "--sglang-service", "gone")
    monkeypatch.setattr(command, "_ROOT", node.root)
    monkeypatch.setattr(command, "systemd_runs", lambda: True)
    monkeypatch.setattr(command, "user_of", lambda service: pytest.fail(f"asked for {service}"))
    answer = CliRunner().invoke(app, ["install", *OWN, "--yes"])
    assert answer.exit_code == 0, answer.output
    assert "same     /etc/systemd/system/gone.service.d/50-cyclewatch.conf" in answer.output


def test_a_user_that_the_configuration_does_not_name_is_told_of(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is yours from the first day on, so it is not changed."""
    node.install("--yes")
    monkeypatch.setattr(command, "_ROOT", node.root)
    monkeypatch.setattr(command, "systemd_runs", lambda: True)
    monkeypatch.setattr(command, "user_of", lambda _: "ops")
    answer = CliRunner().invoke(app, ["install", *OWN, "--sglang-service", "sglang", "--yes"])
    assert answer.exit_code == 0, answer.output
    assert "note: profiling.users in /etc/cyclewatch/cyclewatch.toml does not name ops" in answer.output
    assert ("systemctl", "restart", "cyclewatch.service") in node.ran
    (node.root / "etc/cyclewatch/cyclewatch.toml").write_text("nod = 1\n")
    answer = CliRunner().invoke(app, ["install", *OWN, "--sglang-service", "sglang", "--yes"])
    assert "note: " in answer.output
    assert "nod: no such key" in answer.output


def test_the_files_can_be_shown(node: Node) -> None:
    answer = node.install("--show")
    assert answer.output.startswith("# /etc/sysusers.d/cyclewatch.conf\n# Written by ")
    assert "ExecStart=/opt/cyclewatch/bin/cyclewatch run\n" in answer.output
    assert node.files() == {}


def test_programs_get_json(node: Node) -> None:
    planned = json.loads(node.install("--json").output)
    assert planned["done"] is False
    assert {"do": "write", "path": f"/{SERVICE}"} in planned["steps"]
    done = json.loads(node.install("--json", "--yes").stdout)
    assert done["done"] is True
    assert {"do": "run", "command": ["systemctl", f"--root={node.root}", "enable", "cyclewatch.service"]} in done[
        "steps"
    ]
    assert json.loads(node.install("--check", "--json").output) == {"done": False, "steps": []}
    assert json.loads(node.uninstall("--json").output)["done"] is False


@pytest.mark.parametrize("name", ["", "../../x", "a b", ".hidden", "x\ny", "a/b", "x" * 300])
def test_what_is_no_service_is_refused(node: Node, name: str) -> None:
    answer = node.install("--yes", "--sglang-service", name)
    assert answer.exit_code == 1
    assert "not the name of a service" in answer.output
    assert node.files() == {}


def test_a_service_may_be_named_with_or_without_its_ending() -> None:
    assert service_name("sglang") == service_name("sglang.service") == "sglang.service"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/home/ops/venv/bin/cyclewatch", "cannot see it"),
        ("/root/venv/bin/cyclewatch", "cannot see it"),
        ("/tmp/venv/bin/cyclewatch", "cannot see it"),
        ("venv/bin/cyclewatch", "plain absolute path"),
        ("/opt/my venv/bin/cyclewatch", "plain absolute path"),
        ("/opt/%n/bin/cyclewatch", "plain absolute path"),
    ],
)
def test_a_command_that_the_service_could_not_start_is_refused(path: str, reason: str) -> None:
    """Before anything is written."""
    with pytest.raises(InstallError, match=reason):
        check_command(Path(path))


def test_an_image_whose_links_lead_out_of_it_is_not_written_to(node: Node, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (node.root / "etc").symlink_to(tmp_path / "outside")
    answer = node.install("--yes")
    assert answer.exit_code == 1
    assert "leads out of" in answer.output
    assert list((tmp_path / "outside").rglob("*")) == []


def test_where_systemd_does_not_run_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "systemd_runs", lambda: False)
    for name in ("install", "uninstall"):
        answer = CliRunner().invoke(app, [name, "--yes"])
        assert (answer.exit_code, answer.output) == (
            1,
            "cyclewatch: this machine was not booted with systemd: use --root FOLDER for an image\n",
        )


def test_an_image_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["install", "--root", str(tmp_path / "x")])
    assert (answer.exit_code, answer.output) == (
        1,
        f"cyclewatch: {tmp_path}/x: no such folder: give that of an image\n",
    )


def test_a_step_that_fails_ends_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service of SGLang gets a group that does not exist."""

    def fail(words: Sequence[str]) -> str:
        raise InstallError(f"{words[0]}: disk full")

    monkeypatch.setattr(node, "run", fail)
    answer = node.install("--yes", "--sglang-service", "sglang")
    assert answer.exit_code == 1
    assert answer.output.endswith("cyclewatch: systemd-sysusers: disk full\n")
    assert set(node.files()) == {"etc/sysusers.d/cyclewatch.conf"}


def test_programs_that_are_missing_or_fail_are_one_sentence() -> None:
    with pytest.raises(InstallError, match="no-such-program: not found"):
        carry_out.run(("no-such-program",))
    with pytest.raises(InstallError, match=r"^sh -c echo broken >&2; exit 3: broken: see journalctl"):
        carry_out.run(("sh", "-c", "echo broken >&2; exit 3"))
    assert carry_out.run(("echo", "fine")) == "fine\n"


def test_systemd_is_asked_who_sglang_runs_as() -> None:
    asked: list[Sequence[str]] = []

    def ask(words: Sequence[str]) -> str:
        asked.append(words)
        return "LoadState=loaded\nUser=sglang\n"

    assert user_of("sglang.service", ask) == "sglang"
    assert user_of("sglang@.service", ask) == ""
    assert len(asked) == 1
    with pytest.raises(InstallError, match="no such service"):
        user_of("x.service", lambda _: "LoadState=not-found\nUser=\n")


def test_the_version_of_systemd_is_read_or_it_is_said() -> None:
    assert systemd_version(lambda _: "systemd 249 (249.11-0ubuntu3)\n") == 249
    with pytest.raises(InstallError, match="not understood"):
        systemd_version(lambda _: "OpenRC 0.54")


def test_a_live_uninstallation_stops_the_service_first(node: Node) -> None:
    node.install("--yes")
    steps = uninstallation(node.root, live=True, force=False, purge=False)
    assert steps[0] == Command(("systemctl", "disable", "--now", "cyclewatch.service"))
    assert steps[-1] == Command(("systemctl", "daemon-reload"))
    assert [step.act for step in steps if isinstance(step, Change)] == [Act.REMOVE] * 3 + [Act.YOURS]


def test_an_image_without_systemd_s_tools_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    answer = CliRunner().invoke(app, ["install", "--root", str(tmp_path), *OWN])
    assert answer.exit_code == 1
    assert answer.output == "cyclewatch: systemctl: not found: this needs systemd 247 or later\n"
