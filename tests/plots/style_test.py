"""Colours of algorithms are told apart by readers with and without colour blindness. Exits 77 where
a Python package is missing."""

import itertools
import sys
import unittest

try:
    import numpy
    from kvplot import looks, style
    from matplotlib.colors import to_rgb
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Linear RGB as dichromats see it: Machado, Oliveira, Fernandes, "A Physiologically-based Model for
# Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009, severity 1.0.
VISION = {
    "common": numpy.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}
# Linear sRGB to XYZ, and the white of D65: IEC 61966-2-1.
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
       [0.0193339, 0.1191920, 0.9503041]]
WHITE = [0.95047, 1.0, 1.08883]
MIN_DISTANCE = 20.0  # CIE76; 2.3 is just noticeable side by side, thin lines need several times that


def lab(colour, vision):
    """CIELAB of a colour as it is seen."""
    rgb = numpy.array(to_rgb(colour))
    linear = numpy.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = numpy.array(XYZ) @ numpy.clip(numpy.array(VISION[vision]) @ linear, 0, 1) / WHITE
    f = [numpy.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return numpy.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colours, vision):
    """The least distance of two of the colours, and which."""
    return min((float(numpy.linalg.norm(lab(a, vision) - lab(b, vision))), a, b)
               for a, b in itertools.combinations(colours, 2))


class Style(unittest.TestCase):
    def test_every_algorithm_has_a_colour_that_no_reader_takes_for_another(self):
        # Methods of one colour have other markers: legends_test.py.
        colours = sorted({colour for colour, *_ in looks.LOOK.values()})
        self.assertEqual(set(style.SERIES), set(colours))
        for vision in VISION:
            with self.subTest(vision):
                self.assertGreater(closest(colours, vision)[0], MIN_DISTANCE)

    def test_keys_and_values_are_told_apart(self):
        for vision in VISION:
            self.assertGreater(closest([style.KEYS, style.VALUES, style.REFERENCE], vision)[0], MIN_DISTANCE)

    def test_lines_of_a_text_are_looked_at_one_by_one(self):
        with self.assertNoLogs("matplotlib"):  # it knows no line break within a formula
            self.assertTrue(style._is_formula("relative error\nquantile for $\\delta$"))
            self.assertFalse(style._is_formula("costs $5\nto $6"))

    def test_colours_are_seen_on_white(self):
        for name, (colour, *_) in looks.LOOK.items():
            self.assertLess(lab(colour, "common")[0], 82, name)

    def test_the_distances_find_colours_that_look_alike(self):
        # Green and grey, red and brown of a well-known palette; distances by an independent program.
        self.assertLess(closest(["#009E73", "#7F7F7F"], "deuteranopia")[0], 12)
        self.assertLess(closest(["#D55E00", "#8C510A"], "protanopia")[0], 15)
        self.assertGreater(closest(["#009E73", "#7F7F7F"], "common")[0], MIN_DISTANCE)


if __name__ == "__main__":
    unittest.main()
