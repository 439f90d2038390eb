"""What is in the plugin's distribution."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import cyclewatch_sglang as plugin

PROJECT = Path(plugin.__file__).parent
BUILD = "import sys, hatchling.build as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def build(kind: str, target: Path, project: Path = PROJECT) -> Path:
    """A wheel or a source distribution, made as pip makes it."""
    pytest.importorskip("hatchling", reason="NOT TRIED: the distribution; hatchling is not installed")
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_is_module_pth_and_metadata(wheel: Path) -> None:
    """The wheel holds the module, the `.pth` file at the root, and what every wheel holds; nothing else."""
    info = f"cyclewatch_sglang-{plugin.__version__}.dist-info"
    assert contents(wheel) == {
        "cyclewatch_sglang.py",
        "cyclewatch_sglang.pth",
        *(f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")),
    }


def test_metadata(wheel: Path) -> None:
    """No dependencies, Python 3.10, and SGLang's entry point."""
    with zipfile.ZipFile(wheel) as archive:
        info = f"cyclewatch_sglang-{plugin.__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "Requires-Dist" not in metadata
    assert "Requires-Python: >=3.10\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert entry_points.split() == ["[sglang.srt.plugins]", "cyclewatch", "=", "cyclewatch_sglang:load"]


def test_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """From the source distribution comes the same wheel."""
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = (path for path in tmp_path.iterdir() if path.is_dir())
    again = build("wheel", tmp_path, project)
    assert contents(again) == contents(wheel)
    with zipfile.ZipFile(again) as mine, zipfile.ZipFile(wheel) as other:
        assert mine.read("cyclewatch_sglang.py") == other.read("cyclewatch_sglang.py")


@pytest.mark.parametrize("ring_dir", [None, "/dev/shm"])
def test_installed_wheel_arms_every_python(wheel: Path, tmp_path: Path, ring_dir: str | None) -> None:
    """In a fresh environment each Python process is armed from its start if the variable is set, else untouched."""
    venv.create(tmp_path / "env")
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CYCLEWATCH"))}
    code = (
        "import sys; print([type(finder).__name__ for finder in sys.meta_path][0], 'cyclewatch_sglang' in sys.modules)"
    )
    done = subprocess.run(
        [tmp_path / "env/bin/python", "-c", code],
        env=environment | ({"CYCLEWATCH_RING_DIR": ring_dir} if ring_dir else {}),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.split() == (["_Finder", "True"] if ring_dir else ["type", "False"])
