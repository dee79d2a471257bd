"""The wheel carries the curriculum, where a notebook downloaded from the book finds its tables and other chapters."""

from pathlib import Path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py

CURRICULUM = ("_toc.yml", "notebooks/*.ipynb", "book/data/*.json")


class WithCurriculum(build_py):
    """Copies the curriculum into the package, laid out as in a checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the checkout is there
            return
        here = Path(__file__).parent
        for source in (path for pattern in CURRICULUM for path in here.glob(pattern)):
            target = Path(self.build_lib, "cutetut", "curriculum", source.relative_to(here))
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(source, target)


setup(cmdclass={"build_py": WithCurriculum})
