"""What is in the picture of a timeline, and that it can be read wherever it is shown."""

import json
from dataclasses import asdict
from io import BytesIO
from pathlib import Path as File

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor, ImageFont

from cyclewatch.daemon.alerts.picture.curves import alternative_text, curves_of
from cyclewatch.daemon.alerts.picture.illustrator import picture_of
from cyclewatch.daemon.alerts.picture.layout import GROUND, HEIGHT, WIDTH, Box, Path, Shape, Words, shapes_of
from cyclewatch.daemon.alerts.picture.png import png_of
from cyclewatch.daemon.store.incident_timeline import IncidentTimeline
from made_timelines import MINUTE, SECOND, STARTED_NS, USUAL_NS, point, points, timeline

GOLDEN = File(__file__).parents[3] / "golden/alerts/picture.json"
OVER = timeline(
    to_ns=STARTED_NS + 45 * MINUTE,
    ended_at_ns=STARTED_NS + 30 * MINUTE,
    points=points(STARTED_NS - 15 * MINUTE, STARTED_NS + 45 * MINUTE, MINUTE),
)


def shapes(of: IncidentTimeline) -> tuple[Shape, ...]:
    curves = curves_of(of)
    assert curves is not None
    return shapes_of(of, curves)


def words(of: IncidentTimeline) -> list[str]:
    return [shape.text for shape in shapes(of) if isinstance(shape, Words)]


def image(of: IncidentTimeline) -> Image.Image:
    return Image.open(BytesIO(png_of(shapes(of)))).convert("RGB")


def golden() -> str:
    """A shape a line."""
    documents = [{"shape": type(one).__name__, **asdict(one)} for one in shapes(timeline())]
    return "[\n" + ",\n".join(json.dumps(one) for one in documents) + "\n]\n"


def test_the_picture_is_the_golden_one() -> None:
    """Shape by shape: what letters look like is up to Pillow."""
    assert golden() == GOLDEN.read_text()


def test_it_says_what_is_shown_of_what() -> None:
    """Title, units, moment, day, and which line is which."""
    told = words(timeline())
    assert told[-1] == "slower since 08:00"
    for text in ("decode on 127.0.0.1:30000", "median cycle time, ms", "measured", "expected", "UTC, 2027-01-15"):
        assert text in told


def test_axes_have_a_few_round_ticks() -> None:
    told = words(timeline())
    assert [text for text in told if ":" in text and len(text) == 5] == ["07:45", "07:50", "07:55", "08:00"]
    assert [float(text) for text in told if text.replace(".", "").isdigit()] == [22, 24, 26, 28]


def test_the_end_is_marked_too() -> None:
    assert "over at 08:30" in words(OVER)


def test_slower_tails_are_shown_by_the_tail() -> None:
    told = words(timeline(kind="tail"))
    assert "99th percentile of the cycle time, ms" in told
    assert "expected" not in told


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e-3, "µs"), (1.0, "ms"), (1e3, "s"), (1e-9, "µs")], ids=["µs", "ms", "s", "less"]
)
def test_the_unit_fits_the_times(factor: float, unit: str) -> None:
    slow = USUAL_NS * factor
    of = timeline(points=tuple(point(STARTED_NS + n * SECOND, slow * (1 + n), slow) for n in range(3)))
    assert f"median cycle time, {unit}" in words(of)


def test_what_was_not_measured_is_not_drawn() -> None:
    """An idle server is a gap, and a load that was never seen one in what is expected."""
    some = timeline().points
    idle = timeline(points=some[:10] + some[20:])
    unknown = timeline(points=tuple(point(one.start_ns, one.p50_ns, log_ratio=float("nan")) for one in some))
    curves = curves_of(idle)
    assert curves is not None
    assert [len(part) for part in curves.measured] == [10, len(some) - 20]
    curves = curves_of(unknown)
    assert curves is not None
    assert curves.expected == ()


@pytest.mark.parametrize("count", [0, 1])
def test_without_two_points_there_is_no_picture(count: int) -> None:
    assert picture_of(timeline(points=timeline().points[:count])) is None


def test_one_long_step_does_not_flatten_the_rest() -> None:
    """It is cut off; the change stays visible."""
    spike = (*timeline().points[:-1], point(timeline().points[-1].start_ns, 100 * USUAL_NS))
    (curve,) = [one for one in shapes(timeline(points=spike)) if isinstance(one, Path) and one.thickness == 4][-1:]
    heights = [y for _, y in curve.points]
    assert max(heights) - sorted(heights)[5] > 30


def test_some_noise_does_not_look_like_a_cliff() -> None:
    of = timeline(points=points(STARTED_NS - 15 * MINUTE, STARTED_NS + 2 * MINUTE, slower=1.0))
    (curve,) = [one for one in shapes(of) if isinstance(one, Path) and one.thickness == 4][-1:]
    heights = [y for _, y in curve.points]
    assert max(heights) - min(heights) < 40


def test_pixels_are_where_the_shapes_say() -> None:
    """Ground, shade, both curves, and letters in the title."""
    made, drawn = shapes(timeline()), image(timeline())
    assert drawn.size == (WIDTH, HEIGHT)
    assert drawn.getpixel((2, 2)) == ImageColor.getrgb(GROUND)
    shade = next(one for one in made if isinstance(one, Box))
    assert near(drawn.getpixel((int(shade.right) - 3, int(shade.bottom) - 10)), shade.colour)
    for curve in [one for one in made if isinstance(one, Path) and len(one.points) > 10]:
        apart = [(x, y) for x, y in curve.points if x > shade.left]  # before that, one lies on the other
        seen = sum(near(drawn.getpixel((round(x), round(y))), curve.colour) for x, y in apart)
        assert seen >= 0.8 * len(apart)
    title = drawn.crop((16, 10, 400, 44)).convert("L")
    assert sum(title.histogram()[:96]) > 300


def near(pixel: object, colour: str) -> bool:
    assert isinstance(pixel, tuple)
    return all(abs(one - other) < 60 for one, other in zip(pixel, ImageColor.getrgb(colour), strict=True))


def test_the_same_timeline_gives_the_same_bytes() -> None:
    assert picture_of(timeline()) == picture_of(timeline())


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
        for one in (part / 255 for part in ImageColor.getrgb(colour)[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_contrast_is_that_of_wcag() -> None:
    """4.5 to 1 for all letters and both curves, on the ground and on the shade."""
    made = shapes(OVER)
    grounds = [GROUND, *(one.colour for one in made if isinstance(one, Box))]
    colours = {one.colour for one in made if isinstance(one, Words) or (isinstance(one, Path) and len(one.points) > 2)}
    for colour in colours:
        for ground in grounds:
            darker, lighter = sorted((luminance(colour), luminance(ground)))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (colour, ground)


def test_letters_are_large_enough_for_a_chat() -> None:
    """Discord shows it at about 550 pixels of width on a desktop, at 400 or less on a phone."""
    assert min(one.size for one in shapes(OVER) if isinstance(one, Words)) * 400 / WIDTH >= 11


DAY = 24 * 60 * MINUTE


@st.composite
def timelines(draw: st.DrawFn) -> IncidentTimeline:
    """Any length, any times, any names."""
    before, after = draw(st.integers(15 * MINUTE, 400 * DAY)), draw(st.integers(0, 400 * DAY))
    from_ns, to_ns = STARTED_NS - before, STARTED_NS + after
    at = draw(st.lists(st.integers(from_ns, to_ns), min_size=2, max_size=40, unique=True))
    scale = draw(st.floats(1e3, 1e11))
    made = [point(one, scale * draw(st.floats(0.01, 100)), scale * draw(st.floats(0.01, 100))) for one in sorted(at)]
    name = st.text(min_size=1, max_size=64)
    return timeline(
        target=draw(name),
        phase=draw(st.sampled_from(("decode", "extend", "decode_beside_extend", "mixed"))),
        kind=draw(st.sampled_from(("level", "tail", "drift", "deployment"))),
        from_ns=from_ns,
        to_ns=to_ns,
        ended_at_ns=draw(st.none() | st.integers(STARTED_NS, to_ns + DAY)),
        points=tuple(made),
    )


@settings(deadline=None)
@given(of=timelines())
def test_whatever_is_shown_can_be_read(of: IncidentTimeline) -> None:
    """All letters are within the picture, no two texts in one place, all lines in their frame, all of it bounded."""
    made = shapes(of)
    boxes = [letters(one) for one in made if isinstance(one, Words)]
    for left, top, _, bottom in boxes:
        assert left >= 0
        assert top >= 0
        assert bottom <= HEIGHT
    for number, one in enumerate(boxes):
        assert not [other for other in boxes[number + 1 :] if meet(one, other)]
    for shape in made:
        if isinstance(shape, Path):
            assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in shape.points)
    assert 5 < len(made) < 80


def letters(one: Words) -> tuple[float, float, float, float]:
    font = ImageFont.load_default(one.size)
    left, top, right, bottom = font.getbbox(one.text, anchor=one.anchor)
    return one.x + left, one.y + top, one.x + right, one.y + bottom


def meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@settings(deadline=None, max_examples=20)
@given(of=timelines())
def test_it_is_small(of: IncidentTimeline) -> None:
    """Teams takes 28 kB with all the rest, in Base64."""
    made = picture_of(of)
    assert made is not None
    assert len(made.png) < 15_000
    assert len(made.alternative) < 400
    assert made.alternative.isprintable()


def test_the_text_for_those_who_cannot_see_it() -> None:
    curves, over = curves_of(timeline()), curves_of(OVER)
    assert curves is not None
    assert over is not None
    assert alternative_text(timeline(), curves) == (
        "Median cycle time of decode on 127.0.0.1:30000: about 22.4 ms before 08:00 UTC, about 27.4 ms since then."
    )
    slower = tuple(one for one in OVER.points if one.start_ns < STARTED_NS + 30 * MINUTE)
    over = curves_of(timeline(points=slower))
    assert over is not None
    assert alternative_text(OVER, over).endswith("about 27.4 ms since then, not measured after 08:30 UTC.")
