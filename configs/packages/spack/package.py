# A package of Spack 1.0 or later. @VERSION@, @ADDRESS@ and @SHA256@ are filled in by `./bootstrap.sh release`.
import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Kvbench(CMakePackage):
    """Errors of KV-cache compression on real attention: replays queries, keys and values dumped from
    language models through compression algorithms, and measures every answer against exact attention."""

    url = "@ADDRESS@"

    license("Apache-2.0", checked_by="kvbench")

    version("@VERSION@", sha256="@SHA256@")

    variant("plots", default=True, description="What kvplot, figures and the report, runs on")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5~mpi+shared")
    depends_on("zlib-api")
    depends_on("eigen@3.4:3")
    depends_on("cli11")
    depends_on("nlohmann-json@3.11:")
    depends_on("fmt@9.1:")
    depends_on("random123")
    depends_on("xxhash")

    with when("+plots"):
        depends_on("python@3.10:", type="run")
        depends_on("py-numpy", type="run")
        depends_on("py-scipy", type="run")
        depends_on("py-pandas", type="run")
        depends_on("py-matplotlib", type="run")
        depends_on("py-h5py~mpi", type="run")
        depends_on("py-mpld3", type="run")

    conflicts("%gcc@:11", msg="C++20 as GCC has it from 12 on")
    requires(
        "target=x86_64_v3:",
        when="target=x86_64:",
        msg="every value that decides something is computed with fused multiply-add",
    )

    def cmake_args(self):
        x86 = self.spec.satisfies("target=x86_64:")
        return [
            self.define("KVBENCH_TESTS", False),
            self.define("KVBENCH_CUDA", False),
            self.define("KVBENCH_ARCH", "x86-64-v3" if x86 else "native"),
        ]

    @run_after("install")
    def interpreter_of_kvplot(self):
        """Debian's path stands in the launcher's first line."""
        launcher = join_path(self.prefix.bin, "kvplot")
        if self.spec.satisfies("+plots"):
            filter_file(r"^#!.*", f"#!{self.spec['python'].command.path}", launcher)
        else:
            os.remove(launcher)

    def test_validate(self):
        """the shipped dump's stored outputs are those of exact attention"""
        kvbench = which(self.prefix.bin.kvbench)
        kvbench("validate", self.prefix.share.kvbench.data.join("smollm2-constitution.h5"))
