"""What every saved state begins with: the version of its layout, since an upgrade must not guess."""


def check_version(what: str, found: object, reads: int) -> None:
    """Refuse a state that another release saved.

    Raises:
        ValueError: `found` is not the version that this release reads.
    """
    if found != reads:
        raise ValueError(f"{what} of version {found}, this release reads {reads}")
