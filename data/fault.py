"""The error that the programs of this folder end with; without other packages."""

from __future__ import annotations


class Fault(Exception):
    """An error that the user can fix: its place and a remedy in one sentence."""
