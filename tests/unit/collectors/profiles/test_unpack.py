import gzip
import os
from pathlib import Path

import pytest

from cyclewatch.collectors.profiles.records import ProfileError
from cyclewatch.collectors.profiles.unpack import CHUNK_BYTES, Limits, unpacked
from profile_files import write

TEXT = bytes(range(256)) * 20_000


def content(path: Path, limits: Limits = Limits()) -> bytes:  # noqa: B008 (frozen)
    with unpacked(path, limits) as pieces:
        found = list(pieces)
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in found)
    return b"".join(found)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_packing_is_found_by_content(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"trace{suffix}", TEXT)
    assert content(path.rename(tmp_path / "trace.json")) == TEXT


def test_gzip_in_several_parts_is_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", gzip.compress(TEXT) + gzip.compress(b"more"))
    assert content(path) == TEXT + b"more"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("kept", [0.3, 0.999])
def test_a_cut_file_is_refused(tmp_path: Path, suffix: str, kept: float) -> None:
    path = write(tmp_path / f"trace{suffix}", os.urandom(100_000))
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ProfileError, match="ends in the middle"):
        content(path)


@pytest.mark.parametrize("magic", [b"\x1f\x8b", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"])
def test_a_damaged_file_is_refused(tmp_path: Path, magic: bytes) -> None:
    with pytest.raises(ProfileError):
        content(write(tmp_path / "trace", magic + os.urandom(1000)))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"trace{suffix}", bytes(80 << 20))
    with pytest.raises(ProfileError, match="unpacks to more than 250 times its size"):
        content(path)


def test_there_are_limits_on_both_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.gz", os.urandom(3 << 20))
    with pytest.raises(ProfileError, match="larger than 2 MB"):
        content(path, Limits(compressed_bytes=2 << 20))
    with pytest.raises(ProfileError, match="more than 2 MB unpacked"):
        content(path, Limits(unpacked_bytes=2 << 20))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A pipe must not be waited for, nor a device be read for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "pipe", "no regular file"),
        (tmp_path, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (tmp_path / "absent", "cannot be opened: no such file"),
        (Path("a\0b"), "cannot be opened"),
        (write(tmp_path / "empty", ""), "the file is empty"),
    ):
        with pytest.raises(ProfileError, match=reason):
            content(path)
