"""Run, record and measure the chapters; run other kernels without a GPU; say what this machine can do."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from cutetut import __version__, backend

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# options of `emulate` that stand for a variable: the values it takes, and what it says
SETTINGS = {
    "--async": ("CUTETUT_ASYNC", "late|early|random:SEED", "when copies and WGMMAs complete"),
    "--schedule": ("CUTETUT_SCHEDULE", "order|random:SEED", "which warp and which CTA runs next"),
    "--budget": ("CUTETUT_BUDGET", "STEPS", "how many steps a kernel may take before it counts as endless"),
}
TOLERATED = ("uninitialized", "shuffle", "race", "fragment")  # emulator/checks/tolerance.py, which needs numpy


def parser() -> argparse.ArgumentParser:
    """The subcommands and their arguments."""
    name = "cutetut" if Path(sys.argv[0]).name == "cutetut" else "python -m cutetut"
    top = argparse.ArgumentParser(prog=name, description=__doc__)
    top.add_argument("--version", action="version", version=f"cutetut {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    _command(commands, "doctor", "show what this machine has, where kernels will run, and how to solve problems")
    _add_run_and_record(commands)
    _add_measurements(commands)
    _add_emulate(commands)
    progress = _command(commands, "progress", "show which exercises you have solved in JupyterLab")
    progress.add_argument("names", nargs="*", metavar="NAME", help="list a chapter's exercises one by one")
    cache = _command(commands, "cache", "show how many compiled and disassembled kernels are kept on disk")
    cache.add_argument("--clear", action="store_true", help="remove them all")
    return top


def _command(commands: Subcommands, name: str, does: str) -> argparse.ArgumentParser:
    """A subcommand, with the sentence that describes it in the list of commands and in its own help."""
    return commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")


def _add_run_and_record(commands: Subcommands) -> None:
    run = _command(commands, "run", "execute notebooks here, changing no file")
    record = _command(commands, "record", "on a Hopper GPU: execute notebooks and write their outputs")
    named = run.add_mutually_exclusive_group()
    named.add_argument("--list", action="store_true", help="only print the chapters' names")
    for command in (named, record):
        command.add_argument(
            "notebook", nargs="*", default=[], help="such as 00_start_here, or a path; all chapters if none is named"
        )
    what = f"what runs the kernels (or {backend.VARIABLE} in the environment)"
    run.add_argument("--backend", choices=("gpu", "emulator"), help=what)
    at_a_time = "how many at a time; by default one for each core, up to 4"
    run.add_argument("--jobs", type=_count, metavar="N", help=at_a_time)
    and_alone = "a notebook that prints times is recorded alone, after the others"
    record.add_argument("--jobs", type=_count, metavar="N", help=f"{at_a_time}; {and_alone}")


def _add_measurements(commands: Subcommands) -> None:
    bench = _command(commands, "bench", "on a Hopper GPU: measure chapters' kernels beside the vendor's")
    bench.add_argument("notebook", nargs="+", help="such as 04_scalar_fma_gemm")
    bench.add_argument(
        "--part", metavar="PART", action="append", default=[],
        help="measure one part of one notebook's table, by its function benchmark_PART; repeat it for several parts",
    )
    bench.add_argument(
        "--jobs", type=_count, metavar="N", default=1,
        help="measurements side by side: one has the GPU, and the others compile meanwhile (default 1)",
    )
    bench.add_argument(
        "--keep", action="store_true",
        help="keep rows measured with the same code on the same kind of machine, and measure only what is missing",
    )
    bench.add_argument(
        "--add", metavar="ROWS",
        help="only add rows to one notebook's table: a Python expression, which may use the names in its bench cells",
    )  # fmt: skip
    emulator = _command(commands, "bench-emulator", "measure how fast the emulator is on this machine")
    emulator.add_argument(
        "part", nargs="*",
        help="scalar, wgmma, peer, attention or notebooks; all but notebooks, which take minutes, if none is named",
    )  # fmt: skip
    _command(commands, "tables", "write what bench has measured into README's tables and the book's figure")


def _add_emulate(commands: Subcommands) -> None:
    emulate = _command(commands, "emulate", "run a CuTe DSL script, module or notebook in the emulator, without a GPU")
    emulate.add_argument("-m", dest="module", action="store_true", help="run a module by its name, as python -m does")
    emulate.add_argument(
        "--warn", metavar="KINDS", default="",
        help="warn instead of stopping where a kernel does something undefined that is often harmless: "
        f"{', '.join(TOLERATED)}; list kinds to limit it, as in --warn=race,shuffle",
    )  # fmt: skip
    emulate.add_argument(
        "--waive", metavar="KIND@FILE:LINE", action="append", default=[],
        help="accept errors of one of these kinds at one line, as in --waive race@kernel.py:12",
    )
    for option, (variable, values, meaning) in SETTINGS.items():
        emulate.add_argument(option, metavar=values, help=f"{meaning} (or {variable} in the environment)")
    emulate.add_argument(
        "--gpus", type=_count, metavar="N",
        help="how many GPUs the script sees; by default one for each rank, or as many as a notebook asks for",
    )  # fmt: skip
    emulate.add_argument(
        "--ranks", type=_count, default=0, metavar="N",
        help="run the script N times at once, as torchrun --nproc-per-node N does; `emulate torchrun ...` and "
        "`emulate -m torch.distributed.run ...` work as well",
    )  # fmt: skip
    emulate.add_argument("--report", metavar="FILE", default="", help="write the findings to this file, as JSON")
    emulate.add_argument(
        "script", help="a Python file, a notebook or, with -m, a module; .cuda(), streams and events work as on a GPU"
    )
    emulate.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments").required = False


def _count(text: str) -> int:
    """A number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0 if all went well."""
    options = parser().parse_args(_with_kinds(list(sys.argv[1:] if argv is None else argv)))
    backend.activate_on_request()
    try:
        status = _run(options)
        if options.command != "emulate":  # a script may have closed it
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads this, such as `head`, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as missing:
        print(f"cutetut {options.command}: {backend.missing_package(missing)}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    # each subcommand imports what it needs, so that the doctor can look at a machine where little works
    if options.command == "doctor":
        from cutetut import doctor

        return doctor.main()
    if options.command == "cache":
        return _cache(options.clear)
    if options.command == "progress":
        return _progress(options.names)
    if options.command == "emulate":
        with backend.collection_paused():
            from cutetut import emulate

        if (settings := _settings(options)) is None:
            return 2
        return emulate.run(
            options.script, options.args, options.module, options.warn, options.waive, options.report, settings,
            options.gpus, options.ranks,
        )  # fmt: skip
    return _on_notebooks(options)


def _settings(options: argparse.Namespace) -> dict[str, str] | None:
    """The variables that options of `emulate` stand for; None where one has no such value, after a message."""
    from cutetut.emulator import launch
    from cutetut.emulator.checks import tolerance
    from cutetut.emulator.errors import LaunchError

    asked = {option: (variable, getattr(options, option[2:])) for option, (variable, *_) in SETTINGS.items()}
    settings = {variable: value for variable, value in asked.values() if value is not None}
    asked |= {"--warn": (tolerance.WARN, options.warn), "--waive": (tolerance.WAIVE, ";".join(options.waive))}
    for option, (variable, value) in asked.items():
        try:
            launch.expect_settings({} if value is None else {variable: value})
        except LaunchError as error:
            said = str(error).replace(f"{variable}={value!r}", f"{option} {value}").replace(variable, option)
            print(f"cutetut emulate: {said}", file=sys.stderr)
            return None
    return settings


def _with_kinds(argv: list[str]) -> list[str]:
    """A bare --warn means all kinds: without this argparse would take the script for its value."""
    with_values = ("--waive", "--report", "--gpus", "--ranks", *SETTINGS)
    for i, word in enumerate(argv):
        if i and not word.startswith("-") and argv[i - 1] not in with_values:
            break  # the script: what follows is its own
        if word == "--warn":
            argv[i] = "--warn=all"
    return argv


def _on_notebooks(options: argparse.Namespace) -> int:
    """Run or measure notebooks; a known problem ends in one clear message, without a traceback."""
    from cutetut.course import execute, notebooks
    from cutetut.course.notebooks import NotebookError
    from cutetut.course.provenance import NotRecordable
    from cutetut.measure import bench

    try:
        if options.command == "run":
            if options.list:
                print(*(path.stem for path in notebooks.toc()), sep="\n")
                return 0
            if options.backend == "gpu" and (obstacle := backend.gpu_obstacle(backend.probe())):
                raise backend.BackendError(f"--backend gpu: {obstacle}")
            return int(execute.run(options.notebook, options.jobs, options.backend) > 0)
        if options.command == "bench-emulator":
            from cutetut.measure import emulator_bench

            emulator_bench.run(options.part)
            return 0
        notebooks.expect_own(options.notebook if options.command == "record" else ())
        if options.command == "record":
            return int(execute.record(options.notebook, options.jobs) > 0)
        if options.command == "bench":
            return _bench(options.notebook, options.part, options.jobs, options.add, options.keep)
        from cutetut.measure import tables

        print(f"wrote {', '.join(tables.write()) or 'nothing: all is up to date'}")
        return 0
    except (backend.BackendError, NotebookError, NotRecordable, bench.BenchError, bench.NeedsGPU) as error:
        print(f"cutetut {options.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, say: the files are replaced whole or not at all
        print(f"cutetut {options.command}: {error}; `python -m cutetut doctor` says more", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ncutetut {options.command}: interrupted; nothing was left half written", file=sys.stderr)
        return 130


def _bench(notebooks: Sequence[str], parts: Sequence[str], jobs: int, rows: str | None, keep: bool) -> int:
    """Measure notebooks, or parts of one, or add rows to its table; returns the exit status."""
    from cutetut.measure import bench

    if "emulator" in notebooks:
        raise bench.BenchError("the emulator is not a notebook: `python -m cutetut bench-emulator` measures it")
    if rows is not None and len(notebooks) != 1:
        raise bench.BenchError("--add adds rows to the table of one notebook: name it")
    if parts and (rows is not None or len(notebooks) != 1):
        raise bench.BenchError("--part measures a part of one notebook's table: name it, without --add")
    if keep and rows is not None:
        raise bench.BenchError("--add keeps all that the table has: leave out --keep")
    wanted = [(name, part) for name in notebooks for part in parts or [""]]
    if jobs > 1 and len(wanted) > 1:
        return _bench_side_by_side(wanted, jobs, ["--keep"] if keep else [])
    for name, part in wanted:
        print(f"wrote {bench.run(name, part, keep) if rows is None else bench.add(name, rows)}")
    return 0


def _bench_side_by_side(wanted: Sequence[tuple[str, str]], jobs: int, flags: Sequence[str]) -> int:
    """Measure parts of notebooks in processes of their own, up to `jobs` at once; returns the exit status."""
    from cutetut.measure import turns

    commands = [["-m", "cutetut", "bench", name, *(["--part", part] if part else []), *flags] for name, part in wanted]
    failed = turns.side_by_side(commands, jobs)
    for command in failed:
        print(f"cutetut bench: failed: {' '.join(command[3:])}", file=sys.stderr)
    return int(bool(failed))


def _cache(remove: bool) -> int:
    from cutetut.emulator.host import compile_cache

    use = compile_cache.clear() if remove else compile_cache.use()
    if use.folder is None:
        asked = os.environ.get(compile_cache.VARIABLE, "")
        why = f"={asked}" if asked else " names no folder, and there is no home folder"
        print(f"no compiled kernels are kept: {compile_cache.VARIABLE}{why}")
        return 0
    if problem := compile_cache.why_not():
        print(
            f"{use.folder}: nothing can be kept there ({problem}), so each process compiles its kernels anew; "
            f"set {compile_cache.VARIABLE} to a folder that can be written"
        )
        return 0
    verb, kernels = "removed " if remove else "", "kernel" if use.entries == 1 else "kernels"
    limit = "" if remove else f" of at most {compile_cache.LARGEST >> 20}"
    print(f"{use.folder}: {verb}{use.entries} compiled or disassembled {kernels}, {use.nbytes / 2**20:.1f}{limit} MiB")
    return 0


def _progress(names: Sequence[str]) -> int:
    """How many exercises of each chapter are solved, and which are left; of chapters that are named, each exercise."""
    from cutetut import progress
    from cutetut.columns import aligned
    from cutetut.course import exercises, notebooks

    try:
        kept, file = progress.kept(), progress.file()
        listed = exercises.collect([notebooks.find(name) for name in names] or None)
    except (notebooks.NotebookError, OSError, RuntimeError, UnicodeDecodeError) as error:
        print(f"cutetut progress: {error}", file=sys.stderr)
        return 1
    if names:
        rows = [["chapter", "exercise", "difficulty", "right"]]
        rows += [[e.chapter, f"{e.number}. {e.title}", str(e.difficulty), "yes" * (e.key in kept)] for e in listed]
    else:
        rows = [["chapter", "right", "still to do"]]
        for chapter, (total, _) in exercises.counts(listed).items():
            left = [str(each.number) for each in listed if each.chapter == chapter and each.key not in kept]
            rows.append([chapter, f"{total - len(left)} of {total}", ", ".join(left)])
    print(aligned(rows))
    if not kept:
        lab = "jupyter lab" if notebooks.project_root() == notebooks.INSTALLED else "make lab"
        print(f"Run a check in JupyterLab (`{lab}`): when it says \"right\", the exercise is kept here.")
    print(f"{sum(each.key in kept for each in listed)} of {len(listed)} exercises are right; kept in {file}")
    return 0


def command() -> None:
    """The entry point of the command `cutetut`."""
    status = main()
    gc.freeze()  # the process ends: looking for garbage among all modules once more would take it half a second
    sys.exit(status)
