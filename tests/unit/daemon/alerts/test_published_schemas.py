"""Each service's published schema and limits, written as types, and every message held against them.

A field that a service does not know is an error here, as it is there. Lengths are counted in UTF-16 units, the most
that any of the services could count.
"""

import re
from datetime import datetime
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from alert_messages import EVERY_MESSAGE, NOW_NS, sender

OTHER_PLANES = re.compile("[\U00010000-\U0010ffff]")


class Strict(Struct, forbid_unknown_fields=True):
    pass


Address = Annotated[str, Meta(pattern=r"^https?://[^\s<>|()\"]+$", max_length=2000)]
Instant = Annotated[datetime, Meta(tz=True)]


# docs.slack.dev/reference/block-kit: blocks and composition objects; 50 blocks a message.
class SlackPlain(Strict, tag_field="type", tag="plain_text"):
    text: Annotated[str, Meta(min_length=1, max_length=150)]  # as the text of a header
    emoji: bool


class SlackMarkdown(Strict, tag_field="type", tag="mrkdwn"):
    text: Annotated[str, Meta(min_length=1, max_length=3000)]
    verbatim: bool


class SlackHeader(Strict, tag_field="type", tag="header"):
    text: SlackPlain


class SlackSection(Strict, tag_field="type", tag="section"):
    text: SlackMarkdown


class SlackContext(Strict, tag_field="type", tag="context"):
    elements: Annotated[list[SlackMarkdown], Meta(min_length=1, max_length=10)]


class SlackMessage(Strict):
    text: Annotated[str, Meta(min_length=1, max_length=4000)]
    blocks: Annotated[list[SlackHeader | SlackSection | SlackContext], Meta(max_length=50)]
    unfurl_links: bool
    unfurl_media: bool


# discord.com/developers/docs/resources/message#embed-object, and webhook#execute-webhook.
class DiscordFooter(Strict):
    text: Annotated[str, Meta(max_length=2048)]


class DiscordEmbed(Strict):
    title: Annotated[str, Meta(max_length=256)]
    description: Annotated[str, Meta(max_length=4096)]
    color: Annotated[int, Meta(ge=0, le=0xFFFFFF)]
    timestamp: Instant
    footer: DiscordFooter


class DiscordMentions(Strict):
    parse: Annotated[list[str], Meta(max_length=0)]


class DiscordMessage(Strict):
    allowed_mentions: DiscordMentions
    embeds: Annotated[list[DiscordEmbed], Meta(min_length=1, max_length=10)]


# learn.microsoft.com/connectors/teams (the message), adaptivecards.io/explorer (the card).
class TeamsRun(Strict, tag_field="type", tag="TextRun"):
    text: str
    weight: Literal["Lighter", "Default", "Bolder"] = "Default"
    size: Literal["Small", "Default", "Medium", "Large", "ExtraLarge"] = "Default"
    isSubtle: bool = False  # noqa: N815 (the service's name)


class TeamsParagraph(Strict, tag_field="type", tag="RichTextBlock"):
    inlines: Annotated[list[TeamsRun], Meta(min_length=1)]


class TeamsOpen(Strict, tag_field="type", tag="Action.OpenUrl"):
    title: str
    url: Address


class TeamsLayout(Strict):
    width: Literal["Full"]


class TeamsCard(Strict, tag_field="type", tag="AdaptiveCard", rename={"schema": "$schema"}):
    schema: Literal["http://adaptivecards.io/schemas/adaptive-card.json"]
    version: Literal["1.2", "1.3", "1.4"]  # a workflow shows no later one
    fallbackText: str  # noqa: N815
    msteams: TeamsLayout
    body: list[TeamsParagraph]
    actions: Annotated[list[TeamsOpen], Meta(max_length=6)]


class TeamsAttachment(Strict):
    contentType: Literal["application/vnd.microsoft.card.adaptive"]  # noqa: N815
    contentUrl: None  # noqa: N815
    content: TeamsCard


class TeamsMessage(Strict, tag_field="type", tag="message"):
    attachments: Annotated[list[TeamsAttachment], Meta(min_length=1, max_length=1)]


# open.feishu.cn/document/client-docs/bot-v3/add-custom-bot, and the card's elements there.
class FeishuText(Strict, tag_field="tag", tag="plain_text"):
    content: str


class FeishuDiv(Strict, tag_field="tag", tag="div"):
    text: FeishuText


class FeishuButton(Strict, tag_field="tag", tag="button"):
    type: Literal["default", "primary", "danger"]
    text: FeishuText
    url: Address


class FeishuActions(Strict, tag_field="tag", tag="action"):
    actions: Annotated[list[FeishuButton], Meta(min_length=1)]


class FeishuNote(Strict, tag_field="tag", tag="note"):
    elements: Annotated[list[FeishuText], Meta(min_length=1)]


class FeishuHeader(Strict):
    template: Literal["blue", "green", "orange", "red"]
    title: FeishuText


class FeishuConfig(Strict):
    wide_screen_mode: bool


class FeishuCard(Strict):
    config: FeishuConfig
    header: FeishuHeader
    elements: Annotated[list[FeishuDiv | FeishuActions | FeishuNote], Meta(min_length=1, max_length=50)]


class FeishuMessage(Strict):
    timestamp: Annotated[str, Meta(pattern=r"^\d{10}$")]
    sign: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]{43}=$")]
    msg_type: Literal["interactive"]
    card: FeishuCard


# open.dingtalk.com/document/robots/custom-robot-access: messages of type markdown.
class DingTalkMarkdown(Strict):
    title: Annotated[str, Meta(min_length=1, max_length=200)]
    text: Annotated[str, Meta(min_length=1, max_length=6000)]


class DingTalkMessage(Strict):
    msgtype: Literal["markdown"]
    markdown: DingTalkMarkdown


# developer.pagerduty.com: Send an alert event; payload and links only for `trigger`.
class PagerDutyPayload(Strict):
    summary: Annotated[str, Meta(min_length=1, max_length=1024)]
    source: Annotated[str, Meta(min_length=1)]
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: Instant
    component: str
    group: str
    class_: Annotated[str, Meta(min_length=1)] = msgspec.field(name="class")
    custom_details: dict[str, str] = msgspec.field()


class PagerDutyLink(Strict):
    href: Address
    text: str


class PagerDutyTrigger(Strict, tag_field="event_action", tag="trigger"):
    routing_key: Annotated[str, Meta(min_length=1)]
    dedup_key: Annotated[str, Meta(max_length=255)]
    payload: PagerDutyPayload
    client: str
    links: list[PagerDutyLink]


class PagerDutyAcknowledge(Strict, tag_field="event_action", tag="acknowledge"):
    routing_key: Annotated[str, Meta(min_length=1)]
    dedup_key: Annotated[str, Meta(max_length=255)]


class PagerDutyResolve(Strict, tag_field="event_action", tag="resolve"):
    routing_key: Annotated[str, Meta(min_length=1)]
    dedup_key: Annotated[str, Meta(max_length=255)]


# github.com/prometheus/alertmanager: api/v2/openapi.yaml, postableAlert.
class AlertmanagerAlert(Strict):
    labels: Annotated[dict[Annotated[str, Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")], str], Meta(min_length=1)]
    annotations: dict[Annotated[str, Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")], str]
    startsAt: Instant  # noqa: N815
    endsAt: Instant  # noqa: N815
    generatorURL: Address = "http://unset"  # noqa: N815


# docs/alerts.md: ours.
class WebhookFelt(Strict):
    name: str
    before: float | None
    after: float | None
    unit: str


class WebhookCause(Strict):
    kind: str
    subject: str
    evidence: Annotated[list[str], Meta(max_length=10)]


class WebhookLinks(Strict):
    page: str
    dashboard: str
    runbook: str


class WebhookDocument(Strict):
    version: Literal[1]
    incident: str
    key: Annotated[str, Meta(max_length=255)]
    state: Literal["opened", "grown", "acknowledged", "resolved", "accepted", "merged", "expected", "digest", "test"]
    severity: Literal["critical", "warning", "info"]
    at: Instant
    started_at: Instant
    node: str
    target: str
    targets: int
    model: str
    phase: str
    effect: float | None
    ci: tuple[float | None, float | None]
    felt: list[WebhookFelt]
    cause: WebhookCause | None
    change: str
    by: str
    returns: int
    risen_from: Literal["warning", "info"] | None
    digest: Annotated[list[str], Meta(max_length=40)]
    next_step: str
    command: str
    links: WebhookLinks
    title: str
    lines: Annotated[list[str], Meta(min_length=1, max_length=11)]


# appriseit.com/library/: what Apprise.notify takes; the kinds are those of apprise.NotifyType.
class AppriseNotification(Strict):
    title: Annotated[str, Meta(min_length=1)]
    body: Annotated[str, Meta(min_length=1)]
    notify_type: Literal["info", "success", "warning", "failure"]


SCHEMAS = {
    "apprise": AppriseNotification,
    "slack": SlackMessage,
    "discord": DiscordMessage,
    "teams": TeamsMessage,
    "feishu": FeishuMessage,
    "dingtalk": DingTalkMessage,
    "pagerduty": PagerDutyTrigger | PagerDutyAcknowledge | PagerDutyResolve,
    "alertmanager": Annotated[list[AlertmanagerAlert], Meta(min_length=1)],
    "webhook": WebhookDocument,
}


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_every_message_is_of_the_published_form(kind: str, name: str) -> None:
    body = sender(kind).payload(EVERY_MESSAGE[name], NOW_NS).body.decode()
    body = OTHER_PLANES.sub("xx", body)
    msgspec.json.decode(body, type=SCHEMAS[kind])


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_discord_counts_all_texts_together(name: str) -> None:
    """6,000 characters over all embeds."""
    body = OTHER_PLANES.sub("xx", sender("discord").payload(EVERY_MESSAGE[name], NOW_NS).body.decode())
    (embed,) = msgspec.json.decode(body, type=DiscordMessage).embeds
    assert len(embed.title) + len(embed.description) + len(embed.footer.text) <= 6000


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_slack_counts_all_blocks_together(name: str) -> None:
    """About 13,200 characters, after which it says msg_blocks_too_long: slackapi/bolt-js, issue 2509."""
    body = OTHER_PLANES.sub("xx", sender("slack").payload(EVERY_MESSAGE[name], NOW_NS).body.decode())
    message = msgspec.json.decode(body, type=SlackMessage)
    assert sum(map(len, texts(message))) <= 13_200


def texts(message: SlackMessage) -> list[str]:
    found: list[str] = []
    for block in message.blocks:
        match block:
            case SlackHeader(text=text):
                found.append(text.text)
            case SlackSection(text=markdown):
                found.append(markdown.text)
            case SlackContext(elements=elements):
                found += [element.text for element in elements]
    return found


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_an_alert_ends_after_it_begins(name: str) -> None:
    """Alertmanager refuses it otherwise, and takes no empty label."""
    body = sender("alertmanager").payload(EVERY_MESSAGE[name], NOW_NS).body
    for alert in msgspec.json.decode(body, type=list[AlertmanagerAlert]):
        assert alert.startsAt <= alert.endsAt
        assert all(alert.labels.values())
