"""D3, which the page's script draws with: found where a package manager put it, never kept here.

Why D3 (version 5; BSD 3-clause; 0.25 MB): it scales, ticks, searches (quadtree) and brushes, and
leaves the drawing to a canvas, so that 100,000 points are drawn within a tenth of a second. It
needs neither eval nor inline styles, which the page's policy forbids. Debian 12 has it (node-d3,
no Node.js with it), and so has a wheel of PyPI that is kept up (mpld3). Chart.js (0.2 MB, Debian
alone) makes an object for every point; Plotly and Bokeh bring 4 MB and 1 MB and need what the
policy forbids; Vega evaluates strings.
"""

from importlib.util import find_spec
from pathlib import Path

from kvplot.results import ResultsError

DEBIAN = Path("/usr/share/nodejs/d3/dist/d3.min.js")
IN_WHEEL = "js/d3.v5.min.js"  # path in mpld3's wheel

LICENCE = """\
D3 (https://d3js.org), Copyright 2010-2022 Mike Bostock. All rights reserved.
Redistribution and use in source and binary forms, with or without modification, are permitted
provided that the following conditions are met:
* Redistributions of source code must retain the above copyright notice, this list of conditions and
  the following disclaimer.
* Redistributions in binary form must reproduce the above copyright notice, this list of conditions
  and the following disclaimer in the documentation and/or other materials provided with the
  distribution.
* Neither the name of the author nor the names of contributors may be used to endorse or promote
  products derived from this software without specific prior written permission.
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR
IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR
CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER
IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF
THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE."""


def d3() -> str:
    """The minified D3 of this machine."""
    wheel = find_spec("mpld3")
    places = [DEBIAN]
    if wheel and wheel.submodule_search_locations:
        places += [Path(folder) / IN_WHEEL for folder in wheel.submodule_search_locations]
    for path in places:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise ResultsError(
        "report needs D3; install it: apt-get install node-d3 (Debian), or pip install mpld3"
    )
