"""Which transformers the exporter is tested with, and what is said of another that does not fit."""

import transformers
from format.dump_file import Fault

# Versions that the exporter's tests have passed with.
TESTED = ("5.23.0", "5.24.0")


def unfit(what: str) -> Fault:
    return Fault(
        f"transformers {transformers.__version__} does not fit this exporter: {what}; it is tested "
        f"with {' and '.join(TESTED)}: pip install transformers=={TESTED[0]}"
    )
