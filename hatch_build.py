"""Provides what a wheel has and a checkout does not: the README as package indexes show it, without
pictures and links to files, and, if asked for, the event loop as compiled modules."""

import os
import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


def standalone(text: str) -> str:
    """A Markdown text whose words stay where no other file is next to it.

    >>> standalone("![picture](a.png)\\n\\nRead [the map](sim/README.md).")
    'Read the map.'
    """
    return LINK.sub(r"\1", PICTURE.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Hands the README to the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme``."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standalone(text)}


CORE = {
    "cost": "iteration passes pipelined kernels/expert_tiles kernels/prompts parts/grouped_query"
    " parts/latent",
    "growth": "courses kept_rows sampled steady windowed windowed_drafts",
    "loop": "batch_timer clock engine fleet lockstep passes pipeline recorder replica windowed",
    "memory": "caching drafted drafted_windows held_blocks hybrid paged prefix_search request_slots"
    " run_pool window_hits windowed",
    "schedulers": "ahead ahead_drafts base continuous iteration_level pipelined plan",
}
"""Modules of ``sim`` that took at least 1 % of the time of a run in the profile of plain chat, of
windows, drafts, data ranks or pipelines. Cython 3.3 does not take ``loop/autoscaler`` (a starred
list within ``min``) nor ``schedulers/rules`` (an abstract static method)."""

SAME = {"language_level": 3, "annotation_typing": False, "cdivision": False}
"""Directives under which Cython keeps the meaning of Python: annotations do not make numbers of C,
and a division by zero raises."""

FLAGS = ["-O2", "-g0", "-ffp-contract=off"]
"""Flags of the C compiler; the last forbids it to round a product and a sum once, not twice."""


class CoreHook(BuildHookInterface):
    """Adds compiled modules of ``CORE`` next to their Python files, which stay in the wheel, and
    names the platform in its tag. Off unless ``HATCH_BUILD_HOOK_ENABLE_CUSTOM`` is true."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install stays Python."""
        if version != "standard":
            return
        self.place = TemporaryDirectory()
        with chdir(self.root):
            for built in compiled(self.place.name):
                build_data["force_include"][str(built)] = str(built.relative_to(self.place.name))
        build_data["infer_tag"], build_data["pure_python"] = True, False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the compiler wrote."""
        if version == "standard":
            self.place.cleanup()


def compiled(place: str) -> list[Path]:
    """The extension modules of ``CORE``, built from the working directory in ``place``."""
    from Cython.Build import cythonize  # noqa: PLC0415
    from setuptools import Distribution, Extension  # noqa: PLC0415

    modules = [f"sim/{folder}/{each}" for folder in CORE for each in CORE[folder].split()]
    extensions = cythonize(
        [
            Extension(each.replace("/", "."), [f"{each}.py"], extra_compile_args=FLAGS)
            for each in modules
        ],
        build_dir=f"{place}/c",
        compiler_directives=SAME,
        nthreads=os.cpu_count(),
        quiet=True,
    )
    build = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp, build.parallel = place, f"{place}/o", os.cpu_count()
    build.ensure_finalized()
    build.run()
    return [Path(each) for each in build.get_outputs()]
