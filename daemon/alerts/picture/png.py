"""Shapes to a PNG; the only place that knows Pillow, which is loaded with the first picture."""

from io import BytesIO

from cyclewatch.daemon.alerts.picture.layout import GROUND, HEIGHT, WIDTH, Box, Path, Shape, Words

_COLOURS = 32
"""Enough for the edges of letters too, and a third of the bytes."""


def png_of(shapes: tuple[Shape, ...]) -> bytes:
    """The picture: 800 by 440 pixels, opaque; the same bytes for the same shapes, as long as Pillow is the same.

    Raises:
        ImportError: Pillow cannot be loaded, or was built without fonts.
    """
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 (7 MB that no daemon without a picture needs)

    image = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
    draw = ImageDraw.Draw(image)
    sizes = {shape.size for shape in shapes if isinstance(shape, Words)}
    fonts = {size: ImageFont.load_default(size) for size in sizes}
    for shape in shapes:
        match shape:
            case Box(left, top, right, bottom, colour):
                draw.rectangle((left, top, right, bottom), fill=colour)
            case Path(points, colour, thickness):
                draw.line(points, fill=colour, width=thickness, joint="curve")
            case Words(x, y, anchor, text, size, colour):
                draw.text((x, y), text, fill=colour, font=fonts[size], anchor=anchor)
    packed = BytesIO()
    image.quantize(_COLOURS).save(packed, "PNG", optimize=True)
    return packed.getvalue()
