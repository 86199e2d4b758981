"""kvplot's command line, called in this process."""

import contextlib
import io
import warnings

from kvplot.__main__ import main
from matplotlib import pyplot


def called(*arguments):
    """Exit code and what is said; a traceback is a failure of the test."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), \
            warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    pyplot.close("all")
    return code, said.getvalue()
