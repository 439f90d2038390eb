"""Build an environment in which the real SGLang runs on a machine without a GPU.

SGLang's own requirements pull gigabytes of CUDA packages that a CPU never loads, and its kernels have no
published CPU build. So: a CPU build of PyTorch first, then the ordinary requirements held to it, then SGLang
and its like without their dependencies, then import-only stand-ins, then the cyclewatch plugin.

    python tests/sglang_cpu/build_env.py 0.5.23 .sglang/0.5.23

A second call with the same inputs does nothing; if only the plugin changed, only that is installed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PLUGIN: Final = HERE.parents[1] / "deploy" / "sglang-plugin"
TORCH: Final = "torch==2.13.0"
STAMP: Final = "cyclewatch-build.json"
NO_SOURCES: Final = {"__pycache__", "build", "dist"}
CHECK: Final = """
import importlib.metadata, warnings
warnings.simplefilter("ignore")
import sglang, sglang.srt.managers.scheduler, torch
print(f"SGLang {importlib.metadata.version('sglang')} with torch {torch.__version__} can be imported")
"""
"""Importing the scheduler needs all requirements and stand-ins; `sglang` alone needs hardly any."""


class BuildError(Exception):
    """The environment cannot be built; the text is one sentence for the user."""


@dataclass(frozen=True)
class Inputs:
    """Hashes of everything an environment is made of; the plugin apart, since it changes often."""

    environment: str
    plugin: str | None


def versions(folder: Path = HERE) -> list[str]:
    """Return the SGLang versions there are requirements for."""
    return sorted(path.stem.removeprefix("requirements-") for path in folder.glob("requirements-*.txt"))


def source_files(folder: Path) -> list[Path]:
    """Return the files under a folder, without what Python or a build leaves there."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not NO_SOURCES.intersection(path.relative_to(folder).parts)
    )


def files_hash(root: Path, files: Iterable[Path], *texts: str) -> str:
    """Return a hash of the files' paths below `root`, of their contents, and of some texts."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{text}\0".encode())
    for file in files:
        digest.update(f"{file.relative_to(root)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


def current_inputs(version: str, torch_index: str | None) -> Inputs:
    """Return the hashes of what an environment would be made of now."""
    files = [HERE / "build_env.py", HERE / f"requirements-{version}.txt", HERE / f"nodeps-{version}.txt"]
    files += source_files(HERE / "stand_ins" / version)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Inputs(
        environment=files_hash(HERE, files, python, torch_index or ""),
        plugin=files_hash(PLUGIN, source_files(PLUGIN)) if (PLUGIN / "pyproject.toml").exists() else None,
    )


def stamped_inputs(destination: Path) -> Inputs | None:
    """Return the inputs of a finished environment; `None` where there is none or it was not finished."""
    try:
        stamp = json.loads((destination / STAMP).read_text(encoding="utf-8"))
        return Inputs(stamp["environment"], stamp["plugin"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None


def run(command: Sequence[str | Path], doing: str, environment: dict[str, str] | None = None) -> None:
    """Run a command, its output passing through; raise if it fails."""
    try:
        code = subprocess.run(command, check=False, env=environment).returncode
    except OSError as error:
        raise BuildError(f"{doing} failed: {error}") from error
    if code:
        raise BuildError(f"{doing} failed with exit code {code}; its own message stands above.")


def install(destination: Path, doing: str, *arguments: str | Path) -> None:
    """Run the environment's pip, saying what for."""
    sys.stderr.write(f"{doing}\n")
    options = ["-qq", "--disable-pip-version-check", "--no-input"]
    run([destination / "bin" / "python", "-m", "pip", "install", *options, *arguments], doing)


def make_venv(destination: Path) -> None:
    """Make an empty environment, replacing an older one of ours but never a folder of someone else's."""
    if destination.exists() and any(destination.iterdir()) and not (destination / STAMP).exists():
        raise BuildError(f"{destination} was not made by this script: remove it or name another folder.")
    run([sys.executable, "-m", "venv", "--clear", destination], "Making the environment")
    (destination / STAMP).write_text("{}\n", encoding="utf-8")


def build_environment(version: str, destination: Path, torch_index: str | None) -> None:
    """Make the environment anew, without the plugin."""
    make_venv(destination)
    index = ["--index-url", torch_index] if torch_index else []
    install(destination, f"Installing {TORCH}", TORCH, *index)
    constraint = destination / "constraints.txt"
    constraint.write_text(f"{TORCH}\n", encoding="utf-8")
    requirements = HERE / f"requirements-{version}.txt"
    install(destination, f"Installing {requirements.name}", "-c", constraint, "-r", requirements)
    without = HERE / f"nodeps-{version}.txt"
    install(destination, f"Installing {without.name} without dependencies", "--no-deps", "-r", without)
    (site_packages,) = destination.glob("lib/python3*/site-packages")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "stand_ins" / version, site_packages, ignore=ignore, dirs_exist_ok=True)


def install_plugin(destination: Path) -> None:
    """Install the cyclewatch plugin from this checkout, even over the same version."""
    install(destination, "Installing the cyclewatch plugin", "--no-deps", "--force-reinstall", PLUGIN)


def check(destination: Path) -> None:
    """Import SGLang in the environment; raise if that fails."""
    environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1"}
    run([destination / "bin" / "python", "-c", CHECK], "Importing SGLang", environment)


def write_stamp(destination: Path, inputs: Inputs) -> None:
    """Note what the environment is made of now."""
    (destination / STAMP).write_text(json.dumps(asdict(inputs)) + "\n", encoding="utf-8")


def build(version: str, destination: Path, torch_index: str | None) -> None:
    """Bring an environment to the current inputs, doing no more than that needs."""
    wanted = current_inputs(version, torch_index)
    there = stamped_inputs(destination)
    if there == wanted:
        sys.stderr.write(f"{destination} is up to date.\n")
        return
    without_plugin = Inputs(wanted.environment, plugin=None)
    if there is None or there.environment != wanted.environment or wanted.plugin is None:
        build_environment(version, destination, torch_index)
        check(destination)
    # Before the plugin: if that fails, the rest still stands.
    write_stamp(destination, without_plugin)
    if wanted.plugin is None:
        sys.stderr.write(f"Without the cyclewatch plugin: {PLUGIN} has no pyproject.toml.\n")
    else:
        install_plugin(destination)
        check(destination)
        write_stamp(destination, wanted)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 after one sentence that says what went wrong."""
    parser = argparse.ArgumentParser(description="Build an environment in which SGLang runs on a CPU.")
    parser.add_argument("version", choices=versions(), help="the SGLang version")
    parser.add_argument("destination", type=Path, help="folder of the environment")
    parser.add_argument(
        "--torch-index",
        metavar="URL",
        help="index with CPU builds of PyTorch, if pip's own gives CUDA builds",
    )
    options = parser.parse_args(arguments)
    try:
        build(options.version, options.destination.absolute(), options.torch_index)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
