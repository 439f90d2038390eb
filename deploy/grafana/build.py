"""Write the dashboards as JSON.

    python deploy/grafana/build.py [DIRECTORY]

What Grafana loads is the JSON in dashboards/; what people change is node.py and health.py. A test holds them equal.
"""

import json
import sys
from pathlib import Path

from health import HEALTH
from node import NODE
from panels import document


def build(directory: Path) -> None:
    """Write both into a directory that exists."""
    for name, dashboard in (("node", NODE), ("health", HEALTH)):
        text = json.dumps(document(dashboard), indent=2, ensure_ascii=False)
        (directory / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
