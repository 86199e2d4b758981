"""The recipe for conda as rattler-build reads it: rendered, without building, for every platform that it is for,
its blanks filled in as a release does. Exits 1 with the reason where it cannot be."""

import sys
from pathlib import Path

import rattler_build

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "configs/packages/conda/recipe.yaml"
PLATFORMS = {"linux-64": "x86-64-v3", "linux-aarch64": "native"}
# What conda-forge's own variants say of compilers.
VARIANTS = {"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.17"]}


def rendered(text: str, platform: str) -> dict:
    recipe = rattler_build.Stage0Recipe.from_yaml(text)
    given = rattler_build.RenderConfig(
        platform=rattler_build.PlatformConfig(target_platform=platform)
    )
    variants = recipe.render(rattler_build.VariantConfig(VARIANTS), given)
    if len(variants) != 1:
        raise ValueError(f"{len(variants)} variants; expected 1")
    return variants[0].recipe.to_dict()


def main() -> int:
    text = (ROOT / RECIPE).read_text(encoding="utf-8")
    version = (ROOT / "version.txt").read_text(encoding="utf-8").strip()
    for mark, value in (
        ("@VERSION@", version),
        ("@ADDRESS@", "https://example.org/kvbench.tar.gz"),
        ("@SHA256@", "0" * 64),
    ):
        text = text.replace(mark, value)
    for platform, arch in PLATFORMS.items():
        try:
            made = rendered(text, platform)
        except (rattler_build.RattlerBuildError, ValueError) as error:
            print(f"{RECIPE}: {platform}: {error}", file=sys.stderr)
            return 1
        if (made["package"]["version"], made["context"]["arch"]) != (version, arch):
            print(f"{RECIPE}: {platform}: not {version} for {arch}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
