"""What a reading is: its unit, where it comes from, its labels, its pace and its price, as data.

Every collector declares its own, so that docs/metrics.md, the help texts of `/metrics` and the labels of each
series are made from one table.
"""

from dataclasses import dataclass

_UNITS = {
    "_per_s": "1/s",
    "_ratio": "ratio",
    "_s": "seconds",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_hertz": "hertz",
    "_celsius": "degrees Celsius",
    "_watts": "watts",
    "_joules": "joules",
}


@dataclass(frozen=True)
class Quantity:
    """One kind of reading.

    `name` ends in its unit, or counts things; `labels` come beside the target, and a series that has none of one
    of them leaves it empty. `target` says whose the readings are: a server's, or the node's. `pace` is the
    setting that paces it, for example `host.interval_s`; `cost` tells what one reading takes, as measured.
    """

    name: str
    help: str
    source: str
    pace: str
    labels: tuple[str, ...] = ()
    target: str = "server"
    cost: str = ""

    @property
    def unit(self) -> str:
        """The unit in words; bytes in a second have both parts."""
        rate = self.name.endswith("_bytes_per_s")
        return "bytes/s" if rate else next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), "count")
