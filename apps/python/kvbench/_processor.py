"""Whether this machine can run what the package was compiled for."""

from __future__ import annotations

from pathlib import Path

# Features that x86-64-v3 adds to the first x86-64, in the words of /proc/cpuinfo.
X86_64_V3 = ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
CPUINFO = Path("/proc/cpuinfo")


def missing_features(cpuinfo: str, arch: str) -> list[str]:
    """Features that code compiled with -march=`arch` uses and `cpuinfo` does not list.

    Empty if nothing is known: of another architecture, or a text without a line of flags.
    """
    if arch != "x86-64-v3":
        return []
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return [feature for feature in X86_64_V3 if feature not in value.split()]
    return []


def require(arch: str) -> None:
    """Raises ImportError if this processor lacks what code compiled with -march=`arch` uses."""
    try:
        missing = missing_features(CPUINFO.read_text(encoding="utf-8", errors="replace"), arch)
    except OSError:
        return
    if missing:
        raise ImportError(
            f"kvbench: this processor lacks {', '.join(missing)}, which the installed build "
            f"({arch}) uses; build kvbench on this machine, pip install ., or "
            "use a processor with AVX2 and FMA (Haswell, Zen or later)"
        )
