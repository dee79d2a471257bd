"""`pytest --emulate`: tests that launch kernels written for a Hopper GPU run without one.

torch.cuda and CUDA's driver answer as on an H200, and each kernel is checked while it runs: what the emulator finds is
the test's failure, or stands in a section below it.  With `@pytest.mark.schedules(N)`, or `--schedules N` for all
tests, a test is run with its asynchronous operations completing late, early and at N random moments, warps and CTAs in
N random orders.

A module of its own, because pytest imports it in every session, and cutetut only if it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_EMULATION = pytest.StashKey[contextlib.ExitStack]()
_FOUND = pytest.StashKey[list[Any]]()  # of cutetut.emulator.findings.Report
_FIXTURE = "_cutetut_schedule"
DEFAULT = 3  # random schedules of the marker without a number


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line."""
    group = parser.getgroup("cutetut", "emulated Hopper GPU (cutetut)")
    group.addoption("--emulate", action="store_true", help="run kernels for Hopper GPUs in cutetut's emulator")
    group.addoption(
        "--schedules", type=int, metavar="N", default=None,
        help="with --emulate: run each test with operations completing late, early, and in N random orders",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py is imported, since it may ask for a GPU."""
    asked = early_config.known_args_namespace
    if asked.schedules is not None and not asked.emulate:
        raise pytest.UsageError("--schedules needs --emulate: a GPU keeps its own order")
    if (asked.schedules or 0) < 0:
        raise pytest.UsageError(f"the number of schedules must be 0 or more, not {asked.schedules}")
    if asked.emulate:
        stack = contextlib.ExitStack()
        try:
            from cutetut import emulate

            early_config.stash[_FOUND] = stack.enter_context(emulate.emulated_gpu())
        except ModuleNotFoundError as missing:
            from cutetut import backend

            raise pytest.UsageError(f"--emulate: {backend.missing_package(missing)}") from None
        except emulate.Refused as refused:
            raise pytest.UsageError(f"--emulate: {refused}") from None
        early_config.stash[_EMULATION] = stack


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    what = "with --emulate, run under late, early and n random completions and schedules"
    config.addinivalue_line("markers", f"schedules(n={DEFAULT}): {what}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """The process is as it was before."""
    stack = config.stash.get(_EMULATION, None)
    if stack is not None:
        stack.close()


def pytest_report_header(config: pytest.Config) -> str | None:
    """A line above the results."""
    return "cutetut: kernels run in the emulator (--emulate)" if _EMULATION in config.stash else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run of the test for each schedule that it asks for."""
    config = metafunc.config
    marker = metafunc.definition.get_closest_marker("schedules")
    if _EMULATION not in config.stash or (marker is None and config.getoption("--schedules") is None):
        return
    asked = marker.args[0] if marker and marker.args else marker.kwargs.get("n", DEFAULT) if marker else None
    count = config.getoption("--schedules") if asked is None else asked
    if not isinstance(count, int) or count < 0:
        raise pytest.UsageError(f"the number of schedules must be 0 or more, not {count!r}")
    runs = [("late", "order"), ("early", "order"), *((f"random:{i}", f"random:{i}") for i in range(count))]
    metafunc.fixturenames.append(_FIXTURE)
    ids = ["late", "early", *(f"random{i}" for i in range(count))]
    metafunc.parametrize(_FIXTURE, runs, ids=ids, indirect=True)


@pytest.fixture
def _cutetut_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
    from cutetut.explore import under

    with under(*request.param):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was found while a test ran, and is not its failure itself, stands in a section of its report."""
    if _EMULATION in item.config.stash and call.excinfo is not None:
        from cutetut import emulate
        from cutetut.emulator.errors import EmulatorError

        error = call.excinfo.value
        if isinstance(error, EmulatorError):  # show its reader no frame of the emulator's and the compiler's
            error.__traceback__ = emulate.own_frames(error.__traceback__, True)
            call.excinfo = pytest.ExceptionInfo.from_exception(error)
    report = yield
    found = item.config.stash.get(_FOUND, None)
    if found:
        failure = str(call.excinfo.value) if call.excinfo is not None else ""
        others = [finding.text for finding in found if finding.text not in failure]
        if others:
            report.sections.append((f"cutetut, {call.when}", "\n\n".join(dict.fromkeys(others))))
        found.clear()
    return report
