"""One module per figure, each with add_arguments(parser) and draw(arguments) -> written paths."""

NAMES = ("error_vs_memory",)
