"""Options and fixtures shared by every test.

The emulator tests compare an emulated kernel with an independent oracle. With `--gpu` the very same tests run
on this machine's Hopper GPU instead, so the oracle and the emulator are both held against the silicon.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.book import browser

ROOT = Path(__file__).resolve().parent.parent
# With several processes the tests of a file run in one of them, because they share kernels that take long to compile;
# those of OF_THE_BOOK share the built book.
OF_THE_BOOK = (
    "test_every_page.py", "test_pages.py", "test_pages_in_a_browser.py", "test_first_page.py", "test_reading.py",
    "test_exercises_page.py", "test_explained.py", "test_errata.py",
)  # fmt: skip
# They begin with what takes longest (of CPU, 20 seconds and more), so that at the end none waits for another: with the
# notebooks, then with these.
LONGEST = (
    *OF_THE_BOOK, "test_22_fa_fp8.py", "test_25_ship_it.py", "test_15_past_cublas.py", "test_19_fa_wgmma.py",
    "test_20_fa_warp_specialized.py", "test_21_fa_pingpong.py", "test_16_rows.py", "test_18_fa_tma.py",
    "test_24_flash_decode.py", "test_23_fa_incoherent.py", "test_museum.py", "test_07_mma_sync.py",
    "test_06_smem_tiling.py",
    "test_21_any_input.py", "test_26_two_gpus.py",
    "test_gpus.py", "test_wgmma.py", "test_13_warp_specialized.py", "test_ordering.py",
    "test_12_tma_pipeline.py", "test_10_wgmma_async.py", "test_ncu.py", "test_emulate_modules.py",
    "test_05_partition_c.py", "test_08_to_10_exercises.py", "test_dsl_surface.py", "test_06_exercises.py",
    "test_pytest_plugin.py", "test_layout_operations_browser.py", "test_pickers_in_a_book.py", "test_04_account.py",
    "test_layout_viewer_browser.py", "test_thread_picker_browser.py", "test_swizzle_view_browser.py",
    "test_cli.py", "test_backend.py", "test_05_exercises.py",
)  # fmt: skip
NO_BROWSER = "no browser starts"  # why a test of a page was skipped


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu", action="store_true", help="run the emulator tests on this machine's Hopper GPU instead"
    )
    parser.addoption(
        "--layout-cases", type=int, default=0, help="so many random calls of each layout operation, with a new seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the backend before any test module imports cutetut, which is when it is decided."""
    config.addinivalue_line("markers", "gpu: needs a Hopper GPU; runs only with --gpu")
    config.addinivalue_line("markers", "emulator: about the emulator itself; left out with --gpu")
    os.environ["CUTETUT_BACKEND"] = "gpu" if config.getoption("--gpu") else "emulator"
    if _is_first_of_several(config):
        return  # pytest-xdist's first process runs no test, and its environment is that of the others
    from cutetut import backend

    backend.activate()  # sets what CuTe DSL reads from the environment when it is imported


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests go to one process, a notebook's cells too, the book's all to one, in the order they have.

    The marker xdist_group would do it, but with pytest 9.2 the names that pytest-xdist 3.8 gives tests do not last.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            name = file.rpartition("/")[2]
            return "book" if name in OF_THE_BOOK else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


def _is_first_of_several(config: pytest.Config) -> bool:
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other backend: deselected, so that the summary line counts it."""
    other = "emulator" if config.getoption("--gpu") else "gpu"
    left_out = [item for item in items if item.get_closest_marker(other)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(other)]
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        rank = {name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: -1 if item.path.suffix == ".ipynb" else rank.get(item.path.name, len(rank)))
    _skip_without_a_browser(config, [item for item in items if item.get_closest_marker("browser")])


def pytest_collection_finish() -> None:
    """What is there when tests begin stays: to look for garbage in it again and again takes a twentieth of the time."""
    gc.collect()
    gc.freeze()


_full = 0  # collections of everything so far


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """So does what outlives a test and a collection of everything: mostly parsed kernels, of thousands of objects."""
    global _full
    yield
    if gc.get_stats()[2]["collections"] != _full:
        gc.collect()  # what is garbage now would stay, too
        if os.environ["CUTETUT_BACKEND"] == "gpu":
            gc.freeze()
        else:
            from cutetut.emulator.host import live

            live.freeze()
        _full = gc.get_stats()[2]["collections"]


def _skip_without_a_browser(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not items or config.option.collectonly or _is_first_of_several(config) or not browser.why_not():
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason=NO_BROWSER))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CUTETUT_NO_SKIPS is set, a test that would be skipped has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(browser.NO_SKIPS):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        why = f": {browser.why_not()}" if NO_BROWSER in str(reason) else ""
        report.longrepr = f"{browser.NO_SKIPS} is set, and this test was to be skipped. {reason}{why}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where everyone looks, that tests were left out for want of a browser."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if count := sum(NO_BROWSER in reason for reason in skipped):
        terminalreporter.write_sep("!", f"{count} tests were not run, because {NO_BROWSER}", yellow=True)
        terminalreporter.write_line(f"{browser.why_not()}. {browser.HOW_TO_INSTALL}", yellow=True)


@pytest.fixture(scope="session")
def on_gpu(request: pytest.FixtureRequest) -> bool:
    """Whether kernels run on the GPU in this session."""
    return bool(request.config.getoption("--gpu"))


@pytest.fixture(scope="session")
def device(on_gpu: bool) -> str:
    """The torch device that kernels' tensors live on."""
    return "cuda" if on_gpu else "cpu"


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, so that a failure repeats."""
    return np.random.default_rng(1234)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """An empty project folder with the files that make it one, for tests that write notebooks."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "book" / "data").mkdir(parents=True)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/intro\nchapters: []\n")
    yield tmp_path
