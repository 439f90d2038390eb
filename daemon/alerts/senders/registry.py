"""All senders, by the type of sink in the settings."""

from collections.abc import Callable

from cyclewatch.config.alerts import SinkType
from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.senders.alertmanager import Alertmanager
from cyclewatch.daemon.alerts.senders.apprise import Apprise
from cyclewatch.daemon.alerts.senders.dingtalk import DingTalk
from cyclewatch.daemon.alerts.senders.discord import Discord
from cyclewatch.daemon.alerts.senders.feishu import Feishu
from cyclewatch.daemon.alerts.senders.pagerduty import PagerDuty
from cyclewatch.daemon.alerts.senders.sender import Sender
from cyclewatch.daemon.alerts.senders.slack import Slack
from cyclewatch.daemon.alerts.senders.teams import Teams
from cyclewatch.daemon.alerts.senders.webhook import Webhook

SENDERS: dict[SinkType, Callable[[Destination], Sender]] = {
    "slack": Slack,
    "discord": Discord,
    "teams": Teams,
    "feishu": Feishu,
    "dingtalk": DingTalk,
    "pagerduty": PagerDuty,
    "alertmanager": Alertmanager,
    "webhook": Webhook,
    "apprise": Apprise,
}
