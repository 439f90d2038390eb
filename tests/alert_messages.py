"""Messages to send, good and hostile, and sinks to send them to."""

import math
from dataclasses import replace

from cyclewatch.config.alerts import SECRET_ADDRESSES
from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.message import Felt, FirstCause, Links, Message, Severity, State
from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.alerts.senders.sender import Sender

NOW_NS = 1_800_000_600 * 10**9
SECRET_PATH = "T0ABCDEF/B0ABCDEF/pathSecretPathSecret"
KEY = "keySecretKeySecret"
SECRETS = ("pathSecretPathSecret", KEY)
URLS = {
    "slack": f"https://hooks.slack.com/services/{SECRET_PATH}",
    "discord": f"https://discord.com/api/webhooks/{SECRET_PATH}",
    "teams": f"https://example.logic.azure.com/workflows/{SECRET_PATH}?api-version=1&sig=pathSecretPathSecret",
    "feishu": f"https://open.feishu.cn/open-apis/bot/v2/hook/{SECRET_PATH}",
    "dingtalk": "https://oapi.dingtalk.com/robot/send?access_token=pathSecretPathSecret",
    "pagerduty": "https://events.pagerduty.com/v2/enqueue",
    "alertmanager": "http://127.0.0.1:9093/prefix",
    "webhook": "https://example.com/alerts",
    "apprise": "apprise://json",
}
KEYS = {
    **dict.fromkeys(("feishu", "dingtalk", "pagerduty", "webhook"), KEY),
    "apprise": f"json://{KEY}@example.com/{SECRET_PATH}",
}

MESSAGE = Message(
    incident="12",
    key="cyclewatch/gpu-node-7/12",
    state=State.OPENED,
    severity=Severity.WARNING,
    target="127.0.0.1:30000",
    node="gpu-node-7",
    model="Qwen2.5-7B-Instruct",
    phase="decode",
    effect=0.22,
    ci=(0.2, 0.24),
    started_at_ns=1_800_000_000 * 10**9,
    at_ns=1_800_000_090 * 10**9,
    felt=(
        Felt("TTFT", 210.0, 262.4, "ms"),
        Felt("ITL", 24.0, 29.3, "ms"),
        Felt("throughput", 12_345.0, 10_119.0, "tokens/s"),
    ),
    cause=FirstCause(
        "gpu_power_cap",
        "the power limit of gpu3 was lowered",
        ("gpu3.power_limit_w 700 before, 400 after", "SM clock 1,980 MHz before, 1,410 MHz after"),
    ),
    next_step="raise the limit of gpu3 again: nvidia-smi -i 3 -pl 700",
    command="cyclewatch incidents show 12",
    links=Links(
        page="https://cyclewatch.example.com/incidents/12",
        dashboard="https://grafana.example.com/d/abc?var-node=gpu-node-7&from=1800000000000",
        runbook="https://wiki.example.com/power_cap",
    ),
    targets=200,
    change="SGLang 0.5.22 to 0.5.23",
)


def sender(kind: str, url: str = "", key: str | None = None) -> Sender:
    """A sender of this kind, to its usual place."""
    destination = Destination(
        "oncall", url or URLS[kind], KEYS.get(kind, "") if key is None else key, url_is_secret=kind in SECRET_ADDRESSES
    )
    return {str(name): make for name, make in SENDERS.items()}[kind](destination)


def filled(text: str) -> Message:
    """A message with `text` wherever a text may stand."""
    return replace(
        MESSAGE,
        incident=text,
        key=text,
        target=text,
        node=text,
        model=text,
        phase=text,
        cause=FirstCause(text, text, (text,) * 20),
        felt=(Felt(text, 1.0, 2.0, text),) * 20,
        next_step=text,
        command=text,
        links=Links(text, text, text),
        change=text,
        by=text,
        digest=(text,) * 50,
    )


# The longest text that any service takes has 2,500 characters; these are four times as long, and one is much longer.
_WILD = '<!channel> <https://e.example|x> @everyone [a](http://e.example) ![i](http://e.example) \x1b[31m\r\n "q\\'
HOSTILE = {
    "nothing": replace(filled(""), cause=None, felt=(), targets=0),
    "spaces": filled(" \t\n"),
    "commands": filled(f"{_WILD} </script> \u202e \x00 \ud800 *_~`| #1 {{a}} %s"),
    "long": filled("x" * 100_000),
    "chinese": filled("汉字" * 5_000),
    "emoji": filled("🔥" * 5_000),
    "entities": filled("&<>" * 3_000),
    "escapes": filled('\\`*_~|[]<>#!"' * 800),
    "controls": filled("\x07\u202e" * 5_000),
    "long links": replace(MESSAGE, links=Links(*[f"https://e.example/{'&' * 480}"] * 3)),
    "too long links": replace(MESSAGE, links=Links(*[f"https://e.example/{'a' * 100_000}"] * 3)),
    "bad links": replace(MESSAGE, links=Links("javascript:alert(1)", "https://e.example/a b|c>", "https://[::1")),
    "no numbers": replace(
        MESSAGE, effect=math.nan, ci=(-math.inf, math.inf), felt=(Felt("TTFT", math.nan, math.inf, "ms"),)
    ),
    "huge numbers": replace(MESSAGE, effect=1e300, felt=(Felt("TTFT", -1e300, 1e300, "ms"),), targets=10**18),
    "ended before it began": replace(MESSAGE, started_at_ns=NOW_NS * 2, risen_from=Severity.INFO),
}
EVERY_MESSAGE = {
    f"{name} {state.value}": replace(message, state=state)
    for name, message in {"good": MESSAGE, **HOSTILE}.items()
    for state in State
}
