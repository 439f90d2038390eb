import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
"""Top-level folders that are packages."""

LINKS = {**{folder: f"../../{folder}" for folder in FOLDERS}, "systemd": "../../deploy/systemd"}
"""What the package shows of the checkout, and where that is."""

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "dist", "build")


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist, built from a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout") / "cyclewatch"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    code = "from hatchling.build import build_sdist, build_wheel; build_wheel('dist'); build_sdist('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    return copy / "dist"


@pytest.fixture(name="wheel", scope="module")
def _wheel(built: Path) -> list[str]:
    """Names of the files in the wheel."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def shipped(folder: str) -> set[str]:
    """The files below a folder that a user needs."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_there_are_the_four_folders() -> None:
    assert FOLDERS == ["collectors", "config", "daemon", "detectors"]


@pytest.mark.parametrize("folder", LINKS)
def test_each_folder_has_its_link(folder: str) -> None:
    """Relative, so that it holds in every clone."""
    link = ROOT / "src/cyclewatch" / folder
    assert link.is_symlink()
    assert link.readlink().as_posix() == LINKS[folder]


def test_the_links_are_committed_as_links() -> None:
    """Not as copies of the folders."""
    command = ["git", "ls-files", "--stage", "src/cyclewatch"]
    answer = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if answer.returncode or not answer.stdout:
        pytest.skip("not a git checkout")
    links = {line.split("/")[-1] for line in answer.stdout.splitlines() if line.startswith("120000")}
    assert links == set(LINKS)


def test_the_wheel_has_one_package_and_nothing_else_on_top(wheel: list[str]) -> None:
    """A top-level `daemon` or `config` would overwrite another distribution's."""
    assert {name.partition("/")[0] for name in wheel} == {"cyclewatch", "cyclewatch-0.1.0.dist-info"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_wheel_has_every_file_of_a_folder(wheel: list[str], folder: str) -> None:
    """Code, migrations, recordings: once each, and none through the links."""
    assert {name.removeprefix("cyclewatch/") for name in wheel if name.startswith(f"cyclewatch/{folder}/")} == shipped(
        folder
    )


def test_the_wheel_has_what_is_installed_on_a_node(wheel: list[str]) -> None:
    """`cyclewatch install` works where nothing but the wheel is."""
    names = {name.rpartition("/")[2] for name in wheel if name.startswith("cyclewatch/systemd/")}
    assert names == {path.name for path in (ROOT / "deploy/systemd").iterdir()}


@pytest.mark.parametrize(
    "name",
    [
        "cyclewatch/__init__.py",
        "cyclewatch/py.typed",
        "cyclewatch/config/hardware.toml",
        "cyclewatch/config/kernel_families.toml",
        "cyclewatch/config/operators.toml",
        "cyclewatch/daemon/store/migrations/env.py",
        "cyclewatch/daemon/store/migrations/script.py.mako",
        "cyclewatch/daemon/store/migrations/versions/0001_first_schema.py",
        "cyclewatch/daemon/store/migrations/versions/0002_quantile_sketch.py",
        "cyclewatch-0.1.0.dist-info/entry_points.txt",
        "cyclewatch-0.1.0.dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_has_what_is_easily_forgotten(wheel: list[str], name: str) -> None:
    assert wheel.count(name) == 1


def test_the_wheel_has_the_recording_of_the_demo(wheel: list[str]) -> None:
    """The demo works where nothing but the wheel is installed."""
    names = {path.name for path in ROOT.glob("daemon/demo/*.xz")}
    assert {Path(name).name for name in wheel if name.endswith(".xz")} == names


def test_the_source_distribution_builds_the_same_wheel(built: Path, wheel: list[str], tmp_path: Path) -> None:
    """What a packager of a Linux distribution starts from."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    code = "from hatchling.build import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=unpacked, check=True, capture_output=True)
    (again,) = (unpacked / "dist").glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        assert set(archive.namelist()) == set(wheel)


def test_the_wheel_runs_without_the_checkout(built: Path, tmp_path: Path) -> None:
    """The command line and the migrations, from the unpacked wheel alone."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import cyclewatch; assert cyclewatch.__file__.startswith(sys.argv[1]), cyclewatch.__file__\n"
        "from cyclewatch.daemon.store.database import open_database\n"
        "open_database(f'sqlite:///{sys.argv[2]}/a.db', create=True).dispose()\n"
        "from cyclewatch.daemon.cli.app import app; app(['config', 'check'])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "site"), str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CYCLEWATCH_")}
    answer = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment)
    assert answer.stdout == "configuration is good\n"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_bare_import_from_the_checkout_is_refused(folder: str) -> None:
    """With the checkout as the working directory, `import daemon` would otherwise find this folder."""
    command = [sys.executable, "-c", f"import {folder}"]
    answer = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert f"import cyclewatch.{folder}, not {folder}" in answer.stderr.splitlines()[-1]
