#!/usr/bin/env python3
"""Checks a picture that gnuplot drew: it has a background of its own, and each text is inside of it, clear of its edge, and
has a contrast of at least 4.5 to it (WCAG 2.1, level AA). Usage: picture.py PICTURE"""
import re
import sys
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
EDGE = 3  # pixels


def rgb(text):
    if text.startswith("#"):
        return [int(text[i:i + 2], 16) for i in (1, 3, 5)]
    if text == "black":
        return [0, 0, 0]
    return [int(n) for n in re.findall(r"\d+", text)]


def luminance(colour):
    part = [c / 255 for c in colour]
    part = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in part]
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2]


def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)


root = xml.parse(sys.argv[1]).getroot()
width, height = (float(n) for n in root.get("viewBox").split()[2:])
wrong = []
ground = root.find(".//" + SVG + "rect")
if ground is None or (float(ground.get("width")), float(ground.get("height"))) != (width, height):
    sys.exit("picture: it has no background of its own")
texts = 0
for group in root.iter(SVG + "g"):
    text = group.find(SVG + "text")
    if text is None:
        continue
    texts += 1
    said = "".join(text.itertext()).strip()
    size = float(group.get("font-size"))
    place = group.get("transform")
    x, y = (float(n) for n in re.search(r"translate\(([-\d.]+),([-\d.]+)\)", place).groups())
    # A text that is turned is as high as it is wide; capitals reach up by three quarters of the font's size.
    if "rotate" not in place and (y - 0.75 * size < EDGE or y + 0.25 * size > height - EDGE):
        wrong.append("'%s' is %.0f pixels from the top of %.0f" % (said, y - 0.75 * size, height))
    if not EDGE <= x <= width - EDGE:
        wrong.append("'%s' is outside" % said)
    seen = contrast(rgb(group.get("fill")), rgb(ground.get("fill")))
    if seen < 4.5:
        wrong.append("'%s' has a contrast of %.1f" % (said, seen))
if texts < 10:
    wrong.append("it has only %d texts" % texts)
for sentence in wrong:
    print("picture: %s" % sentence, file=sys.stderr)
sys.exit(1 if wrong else 0)
