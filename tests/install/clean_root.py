"""A folder with Debian's base and nothing else, for tests that install into it."""

import os
import platform
import shutil
import subprocess
import unittest


def command(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, env={**os.environ, "LC_ALL": "C",
                                            "DEBIAN_FRONTEND": "noninteractive"}, **options)


def clean_root(folder):
    """Debian's base in a folder; raises SkipTest where it cannot be had."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("SKIPPED: a clean root wants root")
    if command("chroot", "/", "true").returncode != 0:
        raise unittest.SkipTest("SKIPPED: chroot is not allowed here")
    if not shutil.which("debootstrap"):
        raise unittest.SkipTest("SKIPPED: debootstrap is not installed")
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    made = command("debootstrap", "--variant=minbase", suite, folder)
    if made.returncode != 0:
        raise unittest.SkipTest("SKIPPED: debootstrap made no root: " + made.stdout[-400:])
