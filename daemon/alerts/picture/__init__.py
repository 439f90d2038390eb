"""The picture in a message: the cycle time around the beginning of an incident.

`curves.py` is what is shown and `layout.py` where, pure; `png.py` alone knows Pillow; `illustrator.py` does it all for
a message, and never keeps one from going out.
"""
